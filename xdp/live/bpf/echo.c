/* The in-kernel target: it answers or swallows UDP datagrams to its addresses where they arrive. Peers outside the allow list, and
 * datagrams that come from a target's own address and port, are counted and dropped. Everything else passes. */
#include "parse.h"

enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_LRU_HASH = 9 };
enum { SINK = 1, ECHO = 2 };

/* veth hands on what a program answers with XDP_TX only to a peer with a program of its own (veth_xdp_flush looks at xdp_prog, Linux
 * 4.19 to 6.18), but what it redirects also to one with GRO. So on veth the way back is a redirect to the interface itself. */
volatile const u32 REDIRECT = 0;

#define SUM_WORDS 400 /* 4 bytes each: the largest datagram whose checksum is finished here */

/* Faults: what becomes of a request is decided by its worker and number alone, as in serve.Faults. BELOW are the shares of drop, dropped
 * reply, reorder and duplicate, added up, of 2^53. */
enum { NONE, DROP, DROP_REPLY, REORDER, DUPLICATE, FAULTS };
volatile const u32 FAULTY = 0;
volatile const u32 REPEATS = 0; /* the program behind the driver answers: it can clone */
volatile const u64 SEED = 0;
volatile const u64 BELOW[FAULTS - 1] = {};

struct endpoint {
	u32 addr[4]; /* IPv4 mapped */
	u16 port;    /* network order */
	u16 _pad;
};

struct prefix {
	u32 bits;
	u32 addr[4];
};

struct counts {
	u64 received, bytes, denied, replied, malformed, unfinished;
	u32 peer[4]; /* the last one found in the allow list, so that the trie is asked once for a train of packets */
	u32 known;
	u32 _pad;
	u64 untold; /* touched, and the ring had no room */
};

/* run is what came with one epoch. */
struct run {
	s64 began, last;
	u64 arrivals, answered;
	u64 touched[FAULTS]; /* requests by what was done to them; those to be overtaken are counted once they are */
	u64 vain;            /* not held to be overtaken, since one of the flow was already */
};

/* lane is one flow of one sender. */
struct lane {
	u32 addr[4];
	u16 port, worker;
	u32 index;
};

/* held is a reply that waits to be overtaken: what tells it from others of its flow, its first 16, 48 or 64 bytes. */
struct held {
	u64 seq;
	u32 words, epoch; /* words = 0: none */
	u64 stamp[8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u64);
} ports SEC(".maps"); /* the set of ports of all endpoints: most packets are told apart by it alone */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct endpoint);
	__type(value, u32);
} endpoints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct prefix);
	__type(value, u32);
} allowed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counts);
} totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct run);
} runs SEC(".maps"); /* by epoch, where there are faults */

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct lane);
	__type(value, struct held);
} lanes SEC(".maps");

/* touch is one request to which something was done. */
struct touch {
	u64 seq;
	u16 worker;
	u8 epoch, fault;
	u32 _pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} touches SEC(".maps"); /* read by user space now and then */

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 4);
} self SEC(".maps");

/* address copies an address, IPv4 as ::ffff:a.b.c.d. */
INLINE void address(u32 *to, u8 *ip, u32 v6, u32 v4_at, u32 v6_at)
{
	if (v6) {
		u32 *a = (u32 *)(ip + v6_at);
		to[0] = a[0];
		to[1] = a[1];
		to[2] = a[2];
		to[3] = a[3];
	} else {
		to[0] = to[1] = 0;
		to[2] = be16(0xffff) << 16;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
		to[2] = 0xffff;
#endif
		to[3] = *(u32 *)(ip + v4_at);
	}
}

INLINE void swap32(u32 *a, u32 *b)
{
	u32 t = *a;
	*a = *b;
	*b = t;
}

/* swap turns the frame round. The checksums do not change by it, but for the time to live, which starts anew. */
INLINE void swap(struct found *f)
{
	u8 *p = f->eth;
	u32 a = *(u32 *)p;
	u16 b = *(u16 *)(p + 4);
	*(u32 *)p = *(u32 *)(p + 6);
	*(u16 *)(p + 4) = *(u16 *)(p + 10);
	*(u32 *)(p + 6) = a;
	*(u16 *)(p + 10) = b;
	u8 *ip = f->ip;
	if (f->v6) {
		ip[7] = 64;
		swap32((u32 *)(ip + 8), (u32 *)(ip + 24));
		swap32((u32 *)(ip + 12), (u32 *)(ip + 28));
		swap32((u32 *)(ip + 16), (u32 *)(ip + 32));
		swap32((u32 *)(ip + 20), (u32 *)(ip + 36));
	} else {
		u16 before = *(u16 *)(ip + 8);
		ip[8] = 64;
		u16 after = *(u16 *)(ip + 8), *check = (u16 *)(ip + 10);
		*check = ~fold((u64)(u16) ~*check + (u16)~before + after); /* RFC 1624, equation 3 */
		swap32((u32 *)(ip + 12), (u32 *)(ip + 16));
	}
	u16 port = f->udp->src;
	f->udp->src = f->udp->dst;
	f->udp->dst = port;
}

/* fits reports whether n bytes from p on are in the frame, in a form that clang cannot turn into arithmetic on the end. */
INLINE int fits(u8 *p, u32 n, u8 *end)
{
	u8 *q = p + n;
	barrier(q);
	return q <= end;
}

/* pseudo is the sum of the pseudo-header. */
INLINE u64 pseudo(struct found *f)
{
	u64 sum = (u64)be16(17) + f->udp->len;
	u32 *a = (u32 *)(f->ip + (f->v6 ? 8 : 12));
	sum += (u64)a[0] + a[1];
	if (f->v6)
		sum += (u64)a[2] + a[3] + a[4] + a[5] + a[6] + a[7];
	return sum;
}

/* finish computes the checksum of a datagram whose sender left that to a network card which a veth pair has not (CHECKSUM_PARTIAL):
 * the field holds the sum of the pseudo-header, not complemented. Without this its echo would be thrown away as damaged. */
INLINE int finish(struct xdp_md *ctx, struct found *f)
{
	u16 field = f->udp->check, sum16 = fold(pseudo(f));
	if (field == 0 || sum16 != field)
		return 1;
	u32 left = be16(f->udp->len);
	u64 sum = sum16;
	u8 *p = (u8 *)f->udp;
	f->udp->check = 0;
	for (int i = 0; i < SUM_WORDS && left >= 4; i++) {
		if (!fits(p, 4, f->end))
			return 0;
		sum += *(u32 *)p;
		p += 4;
		left -= 4;
	}
	if (left >= 4)
		return 0;
	if (left >= 2) {
		if (!fits(p, 2, f->end))
			return 0;
		sum += *(u16 *)p;
		p += 2;
		left -= 2;
	}
	if (left) {
		if (!fits(p, 1, f->end))
			return 0;
		sum += be16((u16)(*p << 8));
	}
	u16 check = ~fold(sum);
	f->udp->check = check ? check : 0xffff;
	return 1;
}

/* marked reports whether the payload begins like a stamp. */
INLINE int marked(struct found *f)
{
	u8 *b = f->payload;
	return b + 2 <= f->end && (b[0] == 0xb2 || (b[0] == 0xb1 && b[1] == 0xa5));
}

/* stamp fills the server's part of a full stamp and mends the checksum by it. */
INLINE void stamp(struct found *f, struct counts *c, s64 received)
{
	u8 *b = f->payload;
	if (!marked(f) || b + 2 > f->end)
		return;
	u32 payload = be16(f->udp->len) - 8;
	if (b[0] == 0xb2) {
		if (payload < 16)
			c->malformed++;
		return;
	}
	if (payload < 48 || b + 48 > f->end || b[2] != 1) {
		c->malformed++;
		return;
	}
	u64 *at = (u64 *)(b + 32), *sent = (u64 *)(b + 40);
	u64 gone = halves(~*at) + halves(~*sent);
	*at = be64((u64)received);
	*sent = be64(bpf_ktime_get_ns());
	if (f->udp->check) {
		u16 check = ~fold((u64)(u16)~f->udp->check + gone + halves(*at) + halves(*sent));
		f->udp->check = check ? check : 0xffff;
	}
}

INLINE int served(u16 network)
{
	u32 port = be16(network), key = port >> 6;
	u64 *set = bpf_map_lookup_elem(&ports, &key);
	return set && *set >> (port & 63) & 1;
}

/* welcome reports whether a peer is in the allow list. */
INLINE int welcome(struct counts *c, u32 *peer)
{
	if (c->known && c->peer[0] == peer[0] && c->peer[1] == peer[1] && c->peer[2] == peer[2] && c->peer[3] == peer[3])
		return 1;
	struct prefix key = {128, {peer[0], peer[1], peer[2], peer[3]}};
	if (!bpf_map_lookup_elem(&allowed, &key))
		return 0;
	c->peer[0] = peer[0];
	c->peer[1] = peer[1];
	c->peer[2] = peer[2];
	c->peer[3] = peer[3];
	c->known = 1;
	return 1;
}

/* asked is a request by its stamp. */
struct asked {
	u64 seq;
	u32 worker, epoch, stride;
	u32 words; /* of 8 bytes, that a reply of its own has */
};

/* name reads the stamp, and reports whether there is one. */
INLINE int name(struct found *f, struct asked *a)
{
	u8 *b = f->payload;
	u32 length = be16(f->udp->len); /* of header and payload; the frame may be padded beyond it */
	if (b + 16 > f->end || length < 8 + 16)
		return 0;
	u64 head = be64(*(u64 *)b);
	if (head >> 56 == 0xb2) {
		a->worker = (head >> 48) & 0xff;
		a->seq = head & 0xffffffffffffULL;
		a->epoch = a->stride = 0;
		a->words = 2;
		return 1;
	}
	if (head >> 40 != 0xb1a501 || b + 48 > f->end || length < 8 + 48)
		return 0;
	a->epoch = (head >> 32) & 0xff;
	a->worker = (head >> 16) & 0xffff;
	a->stride = head & 0xffff;
	a->seq = be64(*(u64 *)(b + 8));
	a->words = b + 64 <= f->end && length >= 8 + 64 ? 8 : 6;
	return 1;
}

/* mixed is one round of mix in serve/queue_fault.go. */
INLINE u64 mixed(u64 h, u64 v)
{
	h += 0x9e3779b97f4a7c15ULL + v;
	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9ULL;
	h = (h ^ h >> 27) * 0x94d049bb133111ebULL;
	return h ^ h >> 31;
}

INLINE u32 fault(struct asked *a)
{
	u64 draw = mixed(mixed(mixed(SEED, 1), a->worker), a->seq) >> 11;
	for (u32 i = 0; i < FAULTS - 1; i++)
		if (draw < BELOW[i])
			return i + 1;
	return NONE;
}

INLINE void touched(struct counts *c, struct run *r, u64 seq, u32 worker, u32 epoch, u32 what)
{
	struct touch t = {.seq = seq, .worker = worker, .epoch = epoch, .fault = what};
	r->touched[what < FAULTS ? what : 0]++;
	if (bpf_ringbuf_output(&touches, &t, sizeof(t), BPF_RB_NO_WAKEUP))
		c->untold++;
}

/* suffer does what the seed has for a request at the door. It returns 1 when nobody answers it; run is its run, 0 without a stamp. */
INLINE int suffer(struct found *f, struct counts *c, s64 now, struct run **run)
{
	struct asked a;
	if (!name(f, &a))
		return 0;
	u32 key = a.epoch & 0xff, what = fault(&a);
	struct run *r = bpf_map_lookup_elem(&runs, &key);
	if (!r)
		return 0;
	if (!r->began)
		r->began = now;
	r->last = now;
	r->arrivals++;
	*run = r;
	if (what != DROP && what != DROP_REPLY)
		return 0;
	touched(c, r, a.seq, a.worker, a.epoch, what);
	return 1;
}

SEC("xdp") int answer(struct xdp_md *ctx)
{
	struct found f;
	if (!find(ctx, &f) || !served(f.udp->dst))
		return XDP_PASS;
	struct endpoint to = {}, from = {};
	address(to.addr, f.ip, f.v6, 16, 24);
	to.port = f.udp->dst;
	u32 *mode = bpf_map_lookup_elem(&endpoints, &to);
	if (!mode)
		return XDP_PASS;
	u32 zero = 0, length = be16(f.udp->len);
	struct counts *c = bpf_map_lookup_elem(&totals, &zero);
	if (!c || length < 8 || (u8 *)f.udp + length > f.end)
		return XDP_PASS;
	s64 now = bpf_ktime_get_ns();
	address(from.addr, f.ip, f.v6, 12, 8);
	from.port = f.udp->src;
	if (!welcome(c, from.addr) || (served(from.port) && bpf_map_lookup_elem(&endpoints, &from))) {
		c->denied++;
		return XDP_DROP;
	}
	c->received++;
	c->bytes += length - 8;
	struct run *run = 0;
	if (*mode == SINK || (FAULTY && suffer(&f, c, now, &run)))
		return XDP_DROP;
	if (REPEATS)
		return XDP_PASS;
	if (!finish(ctx, &f)) {
		c->unfinished++;
		return XDP_DROP;
	}
	stamp(&f, c, now);
	swap(&f);
	c->replied++;
	if (run)
		run->answered++;
	return REDIRECT ? bpf_redirect_map(&self, 0, XDP_DROP) : XDP_TX;
}

/* reload finds the packet again: helpers that may move it make pointers stale. */
INLINE int reload(struct skb *skb, struct found *f) { return find_in((u8 *)(long)skb->data, (u8 *)(long)skb->data_end, f); }

#define CHECK_AT 6 /* of the checksum in the UDP header */

/* mend brings the checksum in line with words that have changed, also where a network card is to finish it (CHECKSUM_PARTIAL). */
INLINE void mend(struct skb *skb, u32 at, u64 diff) { bpf_l4_csum_replace(skb, at + CHECK_AT, 0, fold(diff), BPF_F_MARK_MANGLED_0); }

/* put_times is stamp for this path. */
INLINE void put_times(struct skb *skb, struct found *f, struct asked *a, s64 received)
{
	u8 *b = f->payload;
	if (a->words < 6 || b + 48 > f->end)
		return;
	u64 *at = (u64 *)(b + 32), *sent = (u64 *)(b + 40);
	u64 diff = halves(~*at) + halves(~*sent);
	*at = be64((u64)received);
	*sent = be64(bpf_ktime_get_ns());
	mend(skb, f->at, diff + halves(*at) + halves(*sent));
}

/* keep holds a reply back. */
INLINE void keep(struct found *f, struct lane *lane, struct asked *a)
{
	struct held h = {.seq = a->seq, .words = a->words, .epoch = a->epoch};
	for (u32 i = 0; i < 8; i++) {
		if (i >= a->words || f->payload + 8 * (i + 1) > f->end)
			break;
		h.stamp[i] = *(u64 *)(f->payload + 8 * i);
	}
	bpf_map_update_elem(&lanes, lane, &h, 0);
}

/* become makes the packet the one that was held. */
INLINE int become(struct skb *skb, struct held *h)
{
	struct found f;
	if (!reload(skb, &f))
		return 0;
	u64 diff = 0;
	if (h->words >= 6)
		h->stamp[5] = be64(bpf_ktime_get_ns());
	for (u32 i = 0; i < 8; i++) {
		if (i >= h->words || f.payload + 8 * (i + 1) > f.end)
			break;
		u64 *w = (u64 *)(f.payload + 8 * i);
		diff += halves(~*w) + halves(h->stamp[i]);
		*w = h->stamp[i];
	}
	mend(skb, f.at, diff);
	return 1;
}

/* The answer of a target that repeats and reorders, where XDP cannot: an XDP program can neither clone a packet nor hold one. It runs behind the
 * driver, and all replies take this way, so that they leave in the order in which they are made. A reply that is to be overtaken is kept as its stamp;
 * the next request of its flow pays for it with a clone. */
SEC("tc") int repeat(struct skb *skb)
{
	struct found f;
	bpf_skb_pull_data(skb, skb->len < 256 ? skb->len : 256);
	if (!reload(skb, &f) || !served(f.udp->dst))
		return TC_ACT_UNSPEC;
	struct endpoint to = {};
	address(to.addr, f.ip, f.v6, 16, 24);
	to.port = f.udp->dst;
	u32 *mode = bpf_map_lookup_elem(&endpoints, &to);
	u32 zero = 0;
	struct counts *c = bpf_map_lookup_elem(&totals, &zero);
	if (!mode || *mode != ECHO || !c)
		return TC_ACT_UNSPEC;
	s64 now = bpf_ktime_get_ns();
	struct asked a = {};
	struct lane lane = {};
	u32 what = NONE, index = skb->ifindex;
	struct held *held = 0;
	struct run *run = 0;
	if (name(&f, &a)) {
		u32 key = a.epoch & 0xff;
		what = fault(&a);
		address(lane.addr, f.ip, f.v6, 12, 8);
		lane.port = f.udp->src;
		lane.worker = a.worker;
		lane.index = a.stride ? a.seq % a.stride : 0;
		held = bpf_map_lookup_elem(&lanes, &lane);
		run = bpf_map_lookup_elem(&runs, &key);
		if (held && (held->words != a.words || held->epoch != a.epoch))
			held = 0;
	} else if (marked(&f)) {
		c->malformed++;
	}
	swap(&f);
	put_times(skb, &f, &a, now);
	if (!run) {
		c->replied++;
		return bpf_redirect(index, 0);
	}
	if (what == REORDER && !held) {
		if (reload(skb, &f))
			keep(&f, &lane, &a);
		return TC_ACT_SHOT;
	}
	if (what == REORDER)
		run->vain++;
	if (what == DUPLICATE) {
		bpf_clone_redirect(skb, index, 0);
		c->replied++;
		run->answered++;
		touched(c, run, a.seq, a.worker, a.epoch, DUPLICATE);
	}
	if (held) {
		bpf_clone_redirect(skb, index, 0);
		c->replied++;
		run->answered++;
		if (!become(skb, held))
			return TC_ACT_SHOT;
		touched(c, run, held->seq, a.worker, a.epoch, REORDER);
		held->words = 0;
	}
	c->replied++;
	run->answered++;
	return bpf_redirect(index, 0);
}
