/* What the programs need of the kernel's interface, so that clang is all it takes to build them: include/uapi/linux/bpf.h. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* barrier keeps clang from reasoning about a value, so that a bounds check which the verifier needs stays in. */
#define barrier(x) asm volatile("" : "+r"(x))

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define be16(x) __builtin_bswap16(x)
#define be64(x) __builtin_bswap64(x)
#else
#define be16(x) (x)
#define be64(x) (x)
#endif

enum { BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_PERCPU_ARRAY = 6, BPF_MAP_TYPE_LPM_TRIE = 11, BPF_MAP_TYPE_DEVMAP = 14, BPF_MAP_TYPE_RINGBUF = 27 };
enum { BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1 << 10 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_F_MARK_MANGLED_0 = 1 << 5 };
enum { TC_ACT_UNSPEC = -1, TC_ACT_SHOT = 2 };
enum { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };

struct xdp_md {
	u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};

/* struct __sk_buff as far as it is used here. */
struct skb {
	u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority, ingress_ifindex, ifindex, tc_index, cb[5],
		hash, tc_classid, data, data_end;
};

struct raw_tracepoint_args {
	u64 args[8];
};

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static long (*bpf_l4_csum_replace)(struct skb *skb, u32 offset, u64 from, u64 to, u64 flags) = (void *)11;
static long (*bpf_clone_redirect)(struct skb *skb, u32 ifindex, u64 flags) = (void *)13;
static long (*bpf_redirect)(u32 ifindex, u64 flags) = (void *)23;
static long (*bpf_skb_pull_data)(struct skb *skb, u32 len) = (void *)39;
static long (*bpf_redirect_map)(void *map, u64 key, u64 missing) = (void *)51;
static long (*bpf_ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;

char _license[] SEC("license") = "GPL";

/* fold reduces a sum of 32-bit words to the 16-bit one's complement sum: 2^16 and 2^32 are 1 modulo 65535 (RFC 1071, 2 (B)). It
 * works in either byte order, as long as all words are taken from memory in the same one. */
INLINE u16 fold(u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* halves is a 64-bit word of memory as an addend for fold. */
INLINE u64 halves(u64 word) { return (word & 0xffffffff) + (word >> 32); }
