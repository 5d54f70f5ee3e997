/* Finding the UDP payload of a frame: Ethernet, at most one 802.1Q tag in the frame, IPv4 that is no fragment or IPv6 without
 * extension headers. Everything else is not for us. */
#pragma once
#include "kernel.h"

struct ports {
	u16 src, dst, len, check;
};

struct found {
	u8 *eth, *ip;      /* Ethernet and network header */
	struct ports *udp; /* UDP header, whole in the frame */
	u8 *payload, *end; /* end is that of the frame */
	u32 v6;
	u32 at; /* where the UDP header begins */
};

/* find_in looks at a frame from p to end, and reports whether it found one. */
INLINE int find_in(u8 *p, u8 *end, struct found *f)
{
	u8 *ip = p + 14;
	f->at = 14;
	if (ip + 28 > end)
		return 0;
	u16 type = *(u16 *)(p + 12);
	if (type == be16(0x8100)) {
		type = *(u16 *)(p + 16);
		ip += 4;
		f->at += 4;
		if (ip + 28 > end)
			return 0;
	}
	u8 *udp;
	if (type == be16(0x0800)) {
		u32 words = ip[0] & 15;
		if (ip[0] >> 4 != 4 || words < 5 || ip[9] != 17 || (*(u16 *)(ip + 6) & be16(0x3fff)))
			return 0;
		udp = ip + 4 * words;
		f->at += 4 * words;
		f->v6 = 0;
	} else if (type == be16(0x86dd)) {
		if (ip + 48 > end || ip[6] != 17)
			return 0;
		udp = ip + 40;
		f->at += 40;
		f->v6 = 1;
	} else {
		return 0;
	}
	if (udp + 8 > end)
		return 0;
	f->eth = p;
	f->ip = ip;
	f->udp = (struct ports *)udp;
	f->payload = udp + 8;
	f->end = end;
	return 1;
}

INLINE int find(struct xdp_md *ctx, struct found *f) { return find_in((u8 *)(long)ctx->data, (u8 *)(long)ctx->data_end, f); }
