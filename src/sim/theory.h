/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIM_THEORY_H
#define NVS_SIM_THEORY_H

/*
 * What queueing theory says of a critical client's mean wait, for Poisson arrivals of rate
 * l, service S, load r = l E[S] < 1, served in order: M/G/1.
 *
 * - Alone: l E[S^2] / (2 (1 - r)), the formula of Pollaczek and Khinchine (L. Kleinrock,
 *   Queueing Systems, volume 1, 1975, section 5.6).
 * - Whoever finds it idle waits for a set-up D first: in addition
 *   (2 E[D] + l E[D^2]) / (2 (1 + l E[D])) (H. Levy and L. Kleinrock, A queue with starter
 *   and a queue with vacations: delay analysis by decomposition, Operations Research 34(3),
 *   1986; P. Welch, On a generalized M/G/1 queuing process in which the first customer of
 *   each busy period receives exceptional service, Operations Research 12(5), 1964).
 *
 * Beside others D is what is left of a vacation, the slice of another one that does not end
 * for the critical client's sake, and a switch (B. Doshi, Queueing systems with vacations, a
 * survey, Queueing Systems 1, 1986, has the family). It is what freezing takes, where that
 * is done and the slice has not ended before, and nothing within burst_idle_ns of the last
 * request or after a hint.
 * With the driver's slices the critical client's own ends, too: a request of k slices waits
 * k - 1 times for all the others.
 *
 * It fits the simulation within a few per cent where idle times are longer than a slice
 * and requests are longer than a freeze.
 */

#include "sim/engine.h"

/* Mean wait in ns; NAN where the theory has no answer (overload; gaps without holding). */
double theory_wait_ns(const struct engine_config *config);

#endif
