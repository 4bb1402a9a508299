/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_LIBRARY_H
#define NVS_APPS_LIBRARY_H

/* One line of what nvshare_status() says; none where the library is not there. */
void library_print(void);

#endif
