/* A histogram in HdrHistogram's layout for 1 ns to 1 h at 3 digits: values below 2048 have a bucket each, every further octave 1024. */
#pragma once
#include "kernel.h"

#define HIST_BUCKETS (33 * 1024)
#define HIST_MAX 3600000000000ULL

struct histogram {
	u64 begun, done;    /* records; they differ while one is being written. First, so that a reader's copy begins with them */
	u64 count;
	u64 refused;        /* values outside the range */
	u64 sum_lo, sum_hi; /* exact */
	s64 min, max;       /* exact; meaningful when count > 0 */
	u64 buckets[HIST_BUCKETS];
};

/* bucket_of is the bucket of v <= HIST_MAX. eBPF of this instruction set counts no leading zeros, so the octave is found by halving. */
INLINE u32 bucket_of(u64 v)
{
	if (likely(v < 2048))
		return v;
	u64 x = v >> 11;
	u32 octave = 1;
	if (x >> 16) {
		octave += 16;
		x >>= 16;
	}
	if (x >> 8) {
		octave += 8;
		x >>= 8;
	}
	if (x >> 4) {
		octave += 4;
		x >>= 4;
	}
	if (x >> 2) {
		octave += 2;
		x >>= 2;
	}
	octave += x >> 1;
	return (octave << 10) + (u32)(v >> octave);
}

/* record counts one value. There is one writer per histogram. */
INLINE void record(struct histogram *h, s64 v)
{
	if (unlikely((u64)v > HIST_MAX)) {
		h->refused++;
		return;
	}
	u32 i = bucket_of(v);
	barrier(i);
	if (i >= HIST_BUCKETS)
		return;
	u64 begun = h->begun + 1;
	*(volatile u64 *)&h->begun = begun;
	h->buckets[i]++;
	u64 n = h->count++;
	if (n == 0 || v < h->min)
		h->min = v;
	if (n == 0 || v > h->max)
		h->max = v;
	u64 sum = h->sum_lo + v;
	if (sum < h->sum_lo)
		h->sum_hi++;
	h->sum_lo = sum;
	*(volatile u64 *)&h->done = begun;
}
