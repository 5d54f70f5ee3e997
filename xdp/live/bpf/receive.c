/* The receiver of a run: it takes replies that carry our stamp and come to our ports, times them against planned and sent, and lets
 * everything else pass.
 *
 * Histograms and counts are per CPU, so each has one writer; the window of seen slots is shared and stepped by compare-and-swap.
 */
#include "histogram.h"
#include "parse.h"

#define ROTATE 2 /* histograms, one an interval, used in turn */
enum { LATENCY, SERVICE, SERVER, KINDS };

volatile const u32 WORKERS = 1;
volatile const u32 WINDOW_MASK = 2047; /* words of one worker's window, less one */
volatile const u32 WINDOW_LOG2 = 11;
volatile const u32 TELL = 0; /* replies of these kinds are told one by one */

/* The kinds of a reply, a set. FRESH is the first one of its slot. */
enum { FRESH = 1, LATE = 2, DUPLICATE = 4, REORDERED = 8 };

struct plan {
	s64 start, interval; /* of the timeline */
	s64 timeout;
	u32 epoch;
	u32 active; /* 0 = everything passes */
};

/* share is what one worker sends. */
struct share {
	u64 first, limit; /* measured slots; those below first are warm-up */
	u64 stride;       /* flows, which the slots go round */
	u32 newest;       /* place of its first flow in newest */
	u32 _pad;
};

struct counts {
	u64 unique; /* slots that have their first reply */
	u64 replied, late, duplicate, reordered;
	u64 stray;     /* our stamp, but no slot of this run, or one that has left the window */
	u64 warm;      /* replies to the warm-up */
	u64 contended; /* the window was too busy to tell: counted as stray */
	u64 untold;    /* to be told, and the ring had no room */
	s64 longest;   /* service time, ns, warm-up included */
};

struct lane {
	s64 next_flip;
	u64 index;
	u64 interval_replied[ROTATE];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct plan);
} plans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct share);
} shares SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u64);
} ports SEC(".maps"); /* a set of 65536 bits */

/* window words hold generation << 32 | 32 slots: a word of an older generation is empty. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2048);
	__type(key, u32);
	__type(value, u64);
} window SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} newest SEC(".maps"); /* 1 + the newest slot replied to, by flow */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counts);
} tallies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct lane);
} lanes SEC(".maps");

/* [cpu][interval % ROTATE][kind] */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct histogram);
} histograms SEC(".maps");

/* event is one reply that is told. */
struct event {
	u64 seq;
	s64 planned, sent, received;
	u32 worker, kinds;
};

/* Events, read by user space now and then: nobody is woken up. Its size is set where there is something to tell. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

struct stamp {
	u32 worker, compact;
	u64 seq;
	s64 planned, sent, server_received, server_sent;
};

#define COMPACT_WRAP (1LL << 40)

/* parse reads either form of the stamp (packet/stamp.go): 1 = ours, 0 = no stamp, -1 = a stamp of another epoch. */
INLINE int parse(struct found *f, struct plan *plan, s64 now, struct stamp *st)
{
	u8 *b = f->payload;
	u32 length = be16(f->udp->len); /* of header and payload; the frame may be padded beyond it */
	if (b + 16 > f->end || length < 8 + 16)
		return 0;
	u64 head = be64(*(u64 *)b);
	if (head >> 56 == 0xb2) {
		u64 times = be64(*(u64 *)(b + 8));
		s64 planned = (now & ~(COMPACT_WRAP - 1)) | (s64)(times >> 24);
		if (planned - now > COMPACT_WRAP / 2)
			planned -= COMPACT_WRAP;
		else if (now - planned > COMPACT_WRAP / 2)
			planned += COMPACT_WRAP;
		st->worker = (head >> 48) & 0xff;
		st->compact = 1;
		st->seq = head & 0xffffffffffffULL;
		st->planned = planned;
		st->sent = planned + (s64)((times & 0xffffff) << 6);
		st->server_received = st->server_sent = 0;
		return 1;
	}
	if (head >> 40 != 0xb1a501 || b + 48 > f->end || length < 8 + 48)
		return 0;
	st->worker = (head >> 16) & 0xffff;
	st->compact = 0;
	st->seq = be64(*(u64 *)(b + 8));
	st->planned = be64(*(u64 *)(b + 16));
	st->sent = be64(*(u64 *)(b + 24));
	st->server_received = be64(*(u64 *)(b + 32));
	st->server_sent = be64(*(u64 *)(b + 40));
	return ((head >> 32) & 0xff) == plan->epoch ? 1 : -1;
}

enum { FIRST, AGAIN, GONE, BUSY };

/* mark notes a reply to slot seq in the window of its worker. */
INLINE int mark(u32 worker, u64 seq)
{
	u32 key = worker * (WINDOW_MASK + 1) + ((seq >> 5) & WINDOW_MASK);
	u64 *word = bpf_map_lookup_elem(&window, &key);
	if (!word)
		return GONE;
	u64 generation = (seq >> (5 + WINDOW_LOG2)) & 0xffffffff, bit = 1ULL << (seq & 31);
	u64 old = *(volatile u64 *)word;
	for (int i = 0; i < 8; i++) {
		u64 held = old >> 32, next = old | bit;
		if (held > generation)
			return GONE;
		if (held < generation)
			next = generation << 32 | bit;
		else if (old & bit)
			return AGAIN;
		u64 was = __sync_val_compare_and_swap(word, old, next);
		if (was == old)
			return FIRST;
		old = was;
	}
	return BUSY;
}

/* behind keeps the newest reply of a flow, whose replies all come to one queue, and reports whether seq came after a newer one. */
INLINE int behind(struct share *share, u64 seq)
{
	u32 flow = 0;
	if (share->stride > 1)
		flow = seq >> 32 ? seq % share->stride : (u32)seq % (u32)share->stride;
	u32 key = share->newest + flow;
	u64 *n = bpf_map_lookup_elem(&newest, &key);
	if (!n)
		return 0;
	if (seq + 1 < *n)
		return 1;
	*n = seq + 1;
	return 0;
}

INLINE void note(u32 base, u32 kind, s64 v)
{
	u32 key = base + kind;
	struct histogram *h = bpf_map_lookup_elem(&histograms, &key);
	if (h)
		record(h, v);
}

INLINE void tell(struct counts *c, struct stamp *st, u32 kinds, s64 now)
{
	if (!(kinds & TELL))
		return;
	struct event e = {st->seq, st->planned, st->sent, now, st->worker, kinds};
	if (bpf_ringbuf_output(&events, &e, sizeof(e), BPF_RB_NO_WAKEUP))
		c->untold++;
}

/* take times one reply to a measured slot, and reports whether it was late. */
INLINE int take(struct plan *plan, struct counts *c, struct stamp *st, s64 now)
{
	u32 zero = 0;
	struct lane *lane = bpf_map_lookup_elem(&lanes, &zero);
	if (!lane)
		return 0;
	if (unlikely(now >= lane->next_flip)) {
		u64 interval = plan->interval > 0 ? plan->interval : 1;
		lane->index = now > plan->start ? (u64)(now - plan->start) / interval : 0;
		lane->next_flip = plan->start + (s64)((lane->index + 1) * interval);
	}
	u32 turn = lane->index & (ROTATE - 1);
	lane->interval_replied[turn]++;
	u32 base = (bpf_get_smp_processor_id() * ROTATE + turn) * KINDS;
	s64 latency = now - st->planned;
	int late = latency > plan->timeout;
	if (late)
		c->late++;
	else
		c->replied++;
	note(base, LATENCY, latency);
	note(base, SERVICE, now - st->sent);
	if (st->server_received)
		note(base, SERVER, st->server_sent - st->server_received);
	return late;
}

SEC("xdp") int receive(struct xdp_md *ctx)
{
	struct found f;
	if (!find(ctx, &f))
		return XDP_PASS;
	u32 zero = 0, port = be16(f.udp->dst), key = port >> 6;
	u64 *set = bpf_map_lookup_elem(&ports, &key);
	if (!set || !(*set >> (port & 63) & 1))
		return XDP_PASS;
	struct plan *plan = bpf_map_lookup_elem(&plans, &zero);
	if (!plan || !plan->active)
		return XDP_PASS;
	s64 now = bpf_ktime_get_ns();
	struct stamp st;
	int ours = parse(&f, plan, now, &st);
	if (!ours)
		return XDP_PASS;
	u32 worker = st.worker;
	struct share *share = worker < WORKERS ? bpf_map_lookup_elem(&shares, &worker) : 0;
	struct counts *c = bpf_map_lookup_elem(&tallies, share ? &worker : &zero);
	if (!c)
		return XDP_PASS;
	if (ours < 0 || !share || st.seq >= share->limit) {
		c->stray++;
		return XDP_DROP;
	}
	if (now - st.sent > c->longest)
		c->longest = now - st.sent;
	u32 kinds = behind(share, st.seq) ? FRESH | REORDERED : FRESH;
	if (st.seq < share->first) {
		c->warm++;
		return XDP_DROP;
	}
	switch (mark(worker, st.seq)) {
	case FIRST:
		c->unique++;
		if (kinds & REORDERED)
			c->reordered++;
		if (take(plan, c, &st, now))
			kinds |= LATE;
		tell(c, &st, kinds, now);
		break;
	case AGAIN:
		c->duplicate++;
		tell(c, &st, DUPLICATE, now);
		break;
	case BUSY:
		c->contended++;
		/* fall through */
	case GONE:
		c->stray++;
	}
	return XDP_DROP;
}
