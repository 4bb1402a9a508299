/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIM_THEORY_H
#define NVS_SIM_THEORY_H

/*
 * A critical client's mean wait by queueing theory: an M/G/1 queue with Poisson arrivals of
 * rate l, service S, load r = l E[S] < 1, served in order.
 *
 * - Alone: l E[S^2] / (2 (1 - r)), the formula of Pollaczek and Khinchine (L. Kleinrock,
 *   Queueing Systems, volume 1, 1975, section 5.6).
 * - A request that finds the client idle waits for a set-up D first: in addition
 *   (2 E[D] + l E[D^2]) / (2 (1 + l E[D])) (H. Levy and L. Kleinrock, A queue with starter
 *   and a queue with vacations: delay analysis by decomposition, Operations Research 34(3),
 *   1986; P. Welch, On a generalized M/G/1 queuing process in which the first customer of
 *   each busy period receives exceptional service, Operations Research 12(5), 1964).
 *
 * Beside others D is the rest of a vacation and a switch. The vacation is another client's
 * slice, which ends no sooner for the critical client (B. Doshi, Queueing systems with
 * vacations, a survey, Queueing Systems 1, 1986, has the family). With freezing, D is the time
 * of the freeze, if the slice has not ended before. D is 0 within burst_idle_ns of the last
 * request, and after a hint.
 * With the driver's slices the critical client's own slice ends, too: a request of k slices
 * waits k - 1 times for all the others.
 *
 * The theory fits the simulation within a few per cent if idle times are longer than a slice
 * and requests are longer than a freeze.
 */

#include "sim/engine.h"

/* Mean wait, ns; NAN: the theory has no answer (overload, or gaps without holding). */
double theory_wait_ns(const struct engine_config *config);

#endif
