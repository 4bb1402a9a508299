/* SPDX-License-Identifier: Apache-2.0 */

#include "core/timeshare/predict.h"

#define SAMPLES_MIN   3u
#define ALPHA_PERCENT 30u
#define RATIO_MAX     (100u * (uint64_t)TIMESHARE_PPM)
#define VALUE_MAX     (3600ull * 1000000000) /* keeps the products from overflow */
#define ERROR_HIGH    200000u                /* ppm: be earlier */
#define ERROR_LOW     50000u                 /* ppm: be later */

static uint64_t predict_average(uint64_t old, uint64_t new)
{
	return (old * (100 - ALPHA_PERCENT) + new *ALPHA_PERCENT) / 100;
}

void predict_hint(struct timeshare_predict *predict, const struct timeshare_config *config,
		  uint64_t now_ns, uint64_t value_ns)
{
	if (predict->margin_ns == 0)
		predict->margin_ns = config->margin_ns;
	predict->said_ns = now_ns;
	predict->value_ns = value_ns < VALUE_MAX ? value_ns : VALUE_MAX;
	predict->expected_ns = predict->value_ns;
	if (predict->n >= SAMPLES_MIN)
		predict->expected_ns =
			predict->value_ns / 1000 * predict->ratio_ppm / (TIMESHARE_PPM / 1000);
}

uint64_t predict_start(const struct timeshare_predict *predict,
		       const struct timeshare_config *config, uint64_t preempt_ns)
{
	uint64_t ahead_ns = preempt_ns + predict->margin_ns;

	if (predict->expected_ns < config->prepare_ns || predict->expected_ns <= ahead_ns)
		return predict->said_ns;
	return predict->said_ns + predict->expected_ns - ahead_ns;
}

bool predict_begin(struct timeshare_predict *predict, const struct timeshare_config *config,
		   uint64_t now_ns, uint64_t *ret_error_ns)
{
	uint64_t took_ns = now_ns - predict->said_ns, value_us, ratio_ppm, error_ns, error_ppm;
	uint64_t margin_max = config->hint_ns / 2;

	if (predict->said_ns == 0)
		return false;
	predict->said_ns = 0;
	predict->last_ns = took_ns;
	took_ns = took_ns < VALUE_MAX ? took_ns : VALUE_MAX;
	value_us = predict->value_ns / 1000 ? predict->value_ns / 1000 : 1;
	ratio_ppm = took_ns / value_us * (TIMESHARE_PPM / 1000);
	ratio_ppm = ratio_ppm < RATIO_MAX ? ratio_ppm : RATIO_MAX;
	error_ns = took_ns > predict->expected_ns ? took_ns - predict->expected_ns
						  : predict->expected_ns - took_ns;
	error_ppm = error_ns / (took_ns / 1000 ? took_ns / 1000 : 1) * (TIMESHARE_PPM / 1000);
	error_ppm = error_ppm < RATIO_MAX ? error_ppm : RATIO_MAX;
	predict->ratio_ppm =
		predict->n ? predict_average(predict->ratio_ppm, ratio_ppm) : ratio_ppm;
	predict->error_ppm =
		predict->n ? predict_average(predict->error_ppm, error_ppm) : error_ppm;
	if (predict->n < SAMPLES_MIN)
		predict->n++;
	else if (error_ppm > ERROR_HIGH && predict->margin_ns < margin_max)
		predict->margin_ns += predict->margin_ns / 10 + 1;
	else if (error_ppm < ERROR_LOW && predict->margin_ns > config->margin_ns / 10)
		predict->margin_ns -= predict->margin_ns / 10;
	*ret_error_ns = error_ns;
	return true;
}

bool predict_is_ahead(const struct timeshare_predict *predict, uint64_t now_ns)
{
	return predict->said_ns > 0 && now_ns < predict->said_ns + predict->expected_ns;
}

void predict_cancel(struct timeshare_predict *predict)
{
	predict->said_ns = 0;
}
