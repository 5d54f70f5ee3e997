/* The scheduler of one worker, run again and again by one BPF_PROG_RUN call with BPF_F_TEST_XDP_LIVE_FRAMES (kernel 5.18).
 *
 * Every turn is: read the clock; nothing due: drop the frame, which the kernel recycles, and that is the wait; due: write headers,
 * stamp and checksum from absolute values (the page has seen other packets and other machines), count the lag, step the plan, redirect.
 *
 * All state is one map value with one writer: this program, or user space while no call runs.
 */
#include "histogram.h"

#define ROTATE 4     /* lag histograms, one an interval, used in turn */
#define FLUSH ROTATE /* the histogram of flush times comes behind them */
#define WINDOW 1024  /* turns over which the speed of waiting is measured */
#define SKIPS 32     /* slots that one turn skips at most */

enum { BURST, SKIP, ABORT };

/* Constants of a worker, set before loading: the verifier then cuts what the worker does not need. */
volatile const u32 ME = 0;       /* which of two instances this is; see struct instance */
volatile const u32 HEADER = 42;  /* bytes before the payload: 42, 46, 62 or 66 */
volatile const u32 STAMP = 48;   /* bytes of stamp: 0, 16 (compact), 48, or 64 with room for a report */
volatile const u64 STAMP_HEAD = 0; /* its first 8 bytes, as they lie in memory; of the compact one the first two bytes */
volatile const u32 FLOWS = 1;
volatile const u32 SEGMENTS = 1; /* entries of segments; 0 = planned times come through the ring of times */
volatile const u32 TIMES_MASK = 0;
volatile const u32 UNPACED = 0;
volatile const u32 CATCH_UP = BURST;
volatile const s64 MAX_LAG = 1000000;
volatile const u32 TELL = 0;       /* measured slots that are not sent are told one by one */
volatile const u32 DEPARTURES = 0; /* the times at which the device takes frames are compared with the plan */

/* segment is pace.Segment: instants of each slots, quot + rem/den ns apart. */
struct segment {
	s64 start; /* from the start of the measured part */
	u64 slots, acc, quot, rem, den, each;
};

/* flow is a header ready to go, without the UDP checksum, its last two bytes. */
struct flow {
	u64 head[8];
	u64 sum; /* of everything that the checksum covers, but the stamp's varied words; memory order */
};

struct state {
	/* From the order to start. */
	s64 start;    /* of the measured part, ns of CLOCK_MONOTONIC; 0 = not ordered yet */
	s64 deadline; /* nothing is sent from then on */

	/* Set before a call. */
	s64 interval;   /* of the timeline */
	u64 first;      /* first measured slot; those before it are warm-up */
	u64 idle_cap;   /* a turn of waiting takes at most so long; the rest is work that the kernel did in between */
	u64 batch_mask; /* the kernel flushes after so many turns, plus one */

	/* Place in the plan. */
	s64 next; /* planned time of the next slot */
	u64 acc, quot, rem, den, each;
	u64 left;         /* of the segment */
	u64 instant_left; /* of the instant */
	u64 seq;          /* of the next slot */
	u32 segment, flow;
	u32 done;    /* 1 = plan exhausted, 2 = deadline, 3 = aborted */
	u32 idle;    /* the last turn found nothing due */
	u32 started; /* the first segment is loaded */
	u32 cpu;     /* where the pending frames were redirected */
	u32 owner;   /* the instance that writes all this */
	u32 _pad;
	s64 ended; /* when done was set */
	s64 late;  /* of the slot that ended the run under ABORT */

	/* Clockwork. */
	s64 last;      /* time of the last turn */
	s64 unflushed; /* time of the first redirect of this batch, 0 = none */
	s64 next_flip;
	u64 index; /* interval */
	u64 pending; /* frames redirected and not yet told by the tracepoints */

	s64 mark;    /* time of the last turn whose number divides by WINDOW */
	u64 fastest; /* ns of the fastest so many turns, all ones before */

	/* Books. Measured slots only where not said otherwise. */
	s64 gap;    /* the longest time that the work took to go from one call to the next */
	u64 waited; /* ns of the measured part */
	u64 warmed, sent, skipped, refused;
	s64 last_sent;
	u64 starved; /* turns that found no planned time in the ring */
	u64 taken, dropped, failed;    /* by the device, and not come to it or not wanted: as the tracepoints tell; warm-up included */
	u64 warm_dropped, warm_failed; /* of these, before the first measured slot */
	s64 error;                     /* the last one they told */
	u64 interval_sent[ROTATE];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct state);
} states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ROTATE + 1);
	__type(key, u32);
	__type(value, struct histogram);
} lags SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct segment);
} segments SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct flow);
} flows SEC(".maps");

/* The ring of planned times for plans that are no segments, filled ahead by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, s64);
} times SEC(".maps");

struct feed {
	u64 filled; /* slots whose times are in the ring, or have been */
	u64 total;  /* slots of the plan */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct feed);
} feeds SEC(".maps");

/* The order to start, given once the program is seen to turn: the set-up of a call waits for grace periods of RCU, which on a busy
 * machine take as long as they like. start is written with the deadline already there. */
struct order {
	s64 deadline, start;
	u32 owner; /* the instance that is to do the work */
	u32 _pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct order);
} orders SEC(".maps");

/* A call ends after 2^32-1 turns at most, and the next one takes its time to be set up. Meanwhile a second instance of the program, called
 * by another thread, does the work: it turns and waits until the owner hands over, at the beginning of a batch, when nothing is pending. */
struct instance {
	u64 turn;  /* of this call */
	u64 fresh; /* it has turned without being the owner */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct instance);
} instances SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 4);
} devices SEC(".maps");

#define REDIRECTED 512 /* more than a batch */

/* queue holds the slots of the frames that were redirected and not yet told by the tracepoints, oldest first. Used with TELL or
 * DEPARTURES only. */
struct queue {
	u64 put, got;
	u64 slots[REDIRECTED];
	s64 planned[REDIRECTED];
	s64 left, left_planned; /* when the last measured frame was taken, 0 = none yet, and its planned time */
	u64 untold;             /* slots not sent for which the ring had no room */
};

enum { GAP, GAP_ERROR };

/* Gaps between consecutive frames as the device took them, and how far they are off the plan's. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct histogram);
} gaps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct queue);
} queues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} unsents SEC(".maps"); /* slots, read by user space now and then */

/* queue is 0 when nobody needs it. */
INLINE struct queue *queue(void)
{
	u32 zero = 0;
	return TELL || DEPARTURES ? bpf_map_lookup_elem(&queues, &zero) : 0;
}

INLINE void tell(struct state *s, struct queue *q, u64 slot)
{
	if (TELL && slot >= s->first && bpf_ringbuf_output(&unsents, &slot, sizeof(slot), BPF_RB_NO_WAKEUP))
		q->untold++;
}

/* unsent tells that the slot in hand is not sent. */
INLINE void unsent(struct state *s)
{
	struct queue *q = queue();
	if (q)
		tell(s, q, s->seq);
}

INLINE void finish(struct state *s, u32 why, s64 now)
{
	s->done = why;
	s->ended = now;
}

/* load_segment goes on to the next segment. */
INLINE void load_segment(struct state *s, s64 now)
{
	u32 key = s->segment;
	struct segment *g = key < SEGMENTS ? bpf_map_lookup_elem(&segments, &key) : 0;
	if (!g) {
		finish(s, 1, now);
		return;
	}
	s->segment = key + 1;
	s->next = s->start + g->start;
	s->acc = g->acc;
	s->quot = g->quot;
	s->rem = g->rem;
	s->den = g->den;
	s->each = g->each;
	s->left = g->slots;
	s->instant_left = g->each;
}

/* load_time fetches the planned time of slot seq from the ring, and reports whether it is there. */
INLINE int load_time(struct state *s, s64 now)
{
	u32 zero = 0, key = s->seq & TIMES_MASK;
	struct feed *f = bpf_map_lookup_elem(&feeds, &zero);
	if (!f)
		return 0;
	if (s->seq >= f->total) {
		finish(s, 1, now);
		return 0;
	}
	s64 *t = bpf_map_lookup_elem(&times, &key);
	if (!t || s->seq >= *(volatile u64 *)&f->filled)
		return 0;
	s->next = s->start + *(volatile s64 *)t;
	s->left = 1;
	return 1;
}

/* step goes on to the next slot of the plan. */
INLINE void step(struct state *s, s64 now)
{
	s->seq++;
	u32 flow = s->flow + 1;
	s->flow = flow < FLOWS ? flow : 0;
	if (--s->left == 0) {
		if (SEGMENTS)
			load_segment(s, now);
		return;
	}
	if (--s->instant_left == 0) {
		s->next += s->quot;
		s->acc += s->rem;
		if (s->acc >= s->den) {
			s->acc -= s->den;
			s->next++;
		}
		s->instant_left = s->each;
	}
}

/* arrive is the first turn of an instance as the owner. */
INLINE void arrive(struct state *s, s64 now)
{
	__sync_fetch_and_add(&s->pending, 0); /* a barrier: what the other instance wrote comes after its word that it is done */
	if (s->start && now - s->last > s->gap)
		s->gap = now - s->last;
	s->unflushed = 0; /* what was redirected left with the last batch */
	s->idle = 0;
}

/* hand_over reports whether the order names the other instance and that one turns: the state is its from then on. */
INLINE int hand_over(struct state *s)
{
	u32 zero = 0;
	struct order *o = bpf_map_lookup_elem(&orders, &zero);
	u32 to = o ? *(volatile u32 *)&o->owner : ME;
	if (likely(to == ME) || s->pending)
		return 0;
	struct instance *other = bpf_map_lookup_elem(&instances, &to);
	if (!other || !*(volatile u64 *)&other->fresh)
		return 0;
	__sync_fetch_and_add(&s->pending, 0);
	*(volatile u32 *)&s->owner = to;
	return 1;
}

/* tick is what every turn of the owner does, due or not. */
INLINE void tick(struct state *s, u64 turn, s64 now)
{
	if (s->idle && s->start && now > s->start && !s->done) {
		u64 passed = now - s->last;
		s->waited += passed < s->idle_cap ? passed : s->idle_cap;
	}
	s->last = now;
	s->idle = 1;
	if ((turn & (WINDOW - 1)) == 0) {
		u64 took = now - s->mark;
		if (turn && took < s->fastest)
			s->fastest = took;
		s->mark = now;
	}
	if ((turn & s->batch_mask) == 0 && s->unflushed) {
		u32 key = FLUSH;
		struct histogram *h = bpf_map_lookup_elem(&lags, &key);
		if (h)
			record(h, now - s->unflushed);
		s->unflushed = 0;
	}
	if (unlikely(now >= s->next_flip)) {
		u64 interval = s->interval > 0 ? s->interval : 1;
		s->index = (u64)(now - s->start) / interval;
		s->next_flip = s->start + (s64)((s->index + 1) * interval);
	}
}

/* ordered reports whether the order to start has come. */
INLINE int ordered(struct state *s)
{
	if (likely(s->start))
		return 1;
	u32 zero = 0;
	struct order *o = bpf_map_lookup_elem(&orders, &zero);
	if (!o)
		return 0;
	s64 start = *(volatile s64 *)&o->start, deadline = *(volatile s64 *)&o->deadline;
	if (!start || !deadline)
		return 0;
	s->deadline = deadline;
	s->next_flip = start + s->interval;
	s->start = start;
	return 1;
}

/* due reports whether a slot is to be sent now. */
INLINE int due(struct state *s, s64 now)
{
	if (unlikely(s->done) || !ordered(s))
		return 0;
	if (unlikely(now >= s->deadline)) {
		finish(s, 2, now);
		return 0;
	}
	if (unlikely(SEGMENTS && !s->started)) {
		s->started = 1;
		load_segment(s, now);
		if (s->done)
			return 0;
	}
	if (!SEGMENTS && s->left == 0 && !load_time(s, now)) {
		s->starved++;
		return 0;
	}
	if (now < s->next)
		return 0;
	if (UNPACED && s->seq < s->first && now >= s->start)
		s->seq = s->first;
	if (CATCH_UP == BURST || now - s->next <= MAX_LAG)
		return 1;
	s->idle = 0;
	if (CATCH_UP == ABORT) {
		s->late = now - s->next;
		finish(s, 3, now);
		return 0;
	}
	for (int i = 0; i < SKIPS; i++) {
		if (s->seq >= s->first)
			s->skipped++;
		unsent(s);
		step(s, now);
		if (s->done || (!SEGMENTS && s->left == 0) || now - s->next <= MAX_LAG)
			return 0;
	}
	return 0;
}

/* write makes the frame the packet of this slot. It returns 0 where the frame is too short. */
INLINE int write(struct xdp_md *ctx, struct state *s, s64 planned, s64 now)
{
	u8 *p = (u8 *)(long)ctx->data, *end = (u8 *)(long)ctx->data_end;
	u32 head = HEADER - 2, stamp = STAMP, key = s->flow;
	struct flow *f = bpf_map_lookup_elem(&flows, &key);
	if (!f || p + head + 2 + stamp > end)
		return 0;
	u64 sum = f->sum;
#pragma unroll
	for (int i = 0; i < 8; i++)
		if (i < head / 8)
			*(u64 *)(p + 8 * i) = f->head[i];
	if (head & 4)
		*(u32 *)(p + (head & ~7u)) = *(u32 *)((u8 *)f->head + (head & 0x38));
	u8 *b = p + head + 2;
	if (stamp == 16) {
		u64 lag = now > planned ? (u64)(now - planned) >> 6 : 0;
		if (lag > 0xffffff)
			lag = 0xffffff;
		u64 word = be64(STAMP_HEAD) | (s->seq & 0xffffffffffffULL);
		word = be64(word);
		u64 when = be64((u64)planned << 24 | lag);
		*(u64 *)b = word;
		*(u64 *)(b + 8) = when;
		sum += halves(word) + halves(when);
	} else if (stamp) {
		u64 seq = be64(s->seq), at = be64((u64)planned), sent = be64((u64)now), word = STAMP_HEAD;
		*(u64 *)b = word;
		*(u64 *)(b + 8) = seq;
		*(u64 *)(b + 16) = at;
		*(u64 *)(b + 24) = sent;
		*(u64 *)(b + 32) = 0;
		*(u64 *)(b + 40) = 0;
		if (stamp == 64) {
			*(u64 *)(b + 48) = 0;
			*(u64 *)(b + 56) = 0;
		}
		sum += halves(word) + halves(seq) + halves(at) + halves(sent);
	}
	u16 check = ~fold(sum);
	*(u16 *)(p + head) = check ? check : 0xffff; /* 0 would mean: no checksum (RFC 768) */
	return 1;
}

INLINE void count(struct state *s, s64 planned, s64 now)
{
	if (s->seq < s->first) {
		s->warmed++;
		return;
	}
	if (!s->sent++) {
		s->warm_dropped = s->dropped;
		s->warm_failed = s->failed;
	}
	s->last_sent = now;
	u32 key = s->index & (ROTATE - 1);
	s->interval_sent[key]++;
	if (UNPACED)
		return;
	struct histogram *h = bpf_map_lookup_elem(&lags, &key);
	if (h)
		record(h, now - planned);
}

SEC("xdp") int send(struct xdp_md *ctx)
{
	u32 zero = 0, key = ME;
	struct state *s = bpf_map_lookup_elem(&states, &zero);
	struct instance *me = bpf_map_lookup_elem(&instances, &key);
	if (!s || !me)
		return XDP_DROP;
	u64 turn = me->turn++;
	if (unlikely(*(volatile u32 *)&s->owner != ME)) {
		me->fresh = 1;
		return XDP_DROP;
	}
	s64 now = bpf_ktime_get_ns();
	if (unlikely(me->fresh || turn == 0)) {
		me->fresh = 0;
		arrive(s, now);
	}
	tick(s, turn, now);
	if (((turn & s->batch_mask) == 0 && hand_over(s)) || !due(s, now))
		return XDP_DROP;
	s->idle = 0;
	s64 planned = UNPACED ? now : s->next;
	if (!write(ctx, s, planned, now)) {
		finish(s, 4, now);
		return XDP_DROP;
	}
	int answer = bpf_redirect_map(&devices, 0, XDP_DROP);
	if (likely(answer == XDP_REDIRECT)) {
		count(s, planned, now);
		s->cpu = bpf_get_smp_processor_id();
		s->pending++;
		if (!s->unflushed)
			s->unflushed = now;
		struct queue *q = queue();
		if (q) {
			q->planned[q->put & (REDIRECTED - 1)] = planned;
			q->slots[q->put++ & (REDIRECTED - 1)] = s->seq;
		}
	} else { /* the device is gone */
		s->refused++;
		unsent(s);
	}
	step(s, now);
	return answer;
}

/* mine finds the state when the frames that a tracepoint tells of are this worker's. The kernel flushes a batch before it lets any
 * other network code run on the CPU, so they are exactly while frames are pending there. */
INLINE struct state *mine(void)
{
	u32 zero = 0;
	struct state *s = bpf_map_lookup_elem(&states, &zero);
	return s && s->pending && s->cpu == bpf_get_smp_processor_id() ? s : 0;
}

INLINE void settle(struct state *s, u64 n) { s->pending -= n < s->pending ? n : s->pending; }

#define BULK 64 /* more than a bulk: DEV_MAP_BULK_SIZE is 16 */

/* depart compares the time of a frame that the device has taken with the plan. */
INLINE void depart(struct state *s, struct queue *q, s64 now)
{
	u32 at = q->got & (REDIRECTED - 1), gap_key = GAP, error_key = GAP_ERROR;
	if (q->slots[at] < s->first)
		return;
	s64 gap = now - q->left, off = gap - (q->planned[at] - q->left_planned);
	struct histogram *gap_hist = bpf_map_lookup_elem(&gaps, &gap_key), *error_hist = bpf_map_lookup_elem(&gaps, &error_key);
	if (q->left && gap_hist && error_hist) {
		record(gap_hist, gap);
		record(error_hist, off < 0 ? -off : off);
	}
	q->left = now;
	q->left_planned = q->planned[at];
}

/* sort goes through the frames of a bulk. Those that were not taken are behind those that were, and the kernel frees them (bq_xmit_all, Linux
 * 5.13). */
INLINE void sort(struct state *s, u32 sent, u32 drops)
{
	struct queue *q = queue();
	if (!q)
		return;
	if (DEPARTURES) {
		s64 now = bpf_ktime_get_ns();
		for (u32 i = 0; i < BULK && i < sent; i++) {
			depart(s, q, now);
			q->got++;
		}
	} else {
		q->got += sent;
	}
	for (u32 i = 0; i < BULK && i < drops; i++)
		tell(s, q, q->slots[q->got++ & (REDIRECTED - 1)]);
}

/* TP_PROTO(from_dev, to_dev, int sent, int drops, int err), include/trace/events/xdp.h: what ndo_xdp_xmit took of a bulk. */
SEC("raw_tracepoint/xdp_devmap_xmit") int transmitted(struct raw_tracepoint_args *ctx)
{
	struct state *s = mine();
	if (!s)
		return 0;
	u32 sent = ctx->args[2], drops = ctx->args[3];
	s32 err = ctx->args[4];
	s->taken += sent;
	if (err) {
		s->failed += drops;
		s->error = err;
	} else {
		s->dropped += drops;
	}
	sort(s, sent, drops);
	settle(s, sent + drops);
	return 0;
}

/* TP_PROTO(dev, xdp, tgt, int err, map_type, map_id, index): a frame that never came to a bulk (device down, too long). */
SEC("raw_tracepoint/xdp_redirect_err") int failed(struct raw_tracepoint_args *ctx)
{
	struct state *s = mine();
	if (!s)
		return 0;
	s->failed++;
	s->error = (s32)ctx->args[3];
	struct queue *q = queue();
	if (q) /* it is the last one that was redirected */
		tell(s, q, q->slots[--q->put & (REDIRECTED - 1)]);
	settle(s, 1);
	return 0;
}
