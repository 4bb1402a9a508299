/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_LIBRARY_H
#define NVS_APPS_LIBRARY_H

/* Prints one line of nvshare_status(); without the library, nothing. */
void library_print(void);

#endif
