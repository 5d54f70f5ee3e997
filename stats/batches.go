package stats

import (
	"encoding/binary"
	"math"
	"slices"
)

// batchesMost bounds the batches of a series: when there would be more, neighbours are merged, so that a run of any length keeps 32 to
// 64 and its length need not be known.
const batchesMost = 64

// Batches keeps how the samples of a run came one after the other: stretches of equal time, each a histogram at full resolution in compact
// form, some ten KB. It is what tells how far a quantile moves by itself from one part of the run to another. The zero value is empty.
type Batches struct {
	width   int64 // slices of time that make a batch; 0 is 1
	list    []batch
	scratch []byte
}

// batch is one stretch. packed holds its non-empty buckets in rising order: the distance from the bucket before and the count, as varints.
type batch struct {
	packed []byte
	count  uint64
	sum    float64 // ns
}

// Add counts the samples of h in a slice of time, numbered from 0. Slices may come in any order and more than once.
func (b *Batches) Add(slice int64, h *Hist) {
	if h.hi == 0 {
		return
	}
	b.width = max(b.width, 1)
	for slice/b.width >= batchesMost {
		b.halve()
	}
	i := int(max(slice, 0) / b.width)
	for len(b.list) <= i {
		b.list = append(b.list, batch{})
	}
	x := &b.list[i]
	b.scratch = packUnion(b.scratch[:0], unpack(x.packed), h.buckets())
	x.packed = append(x.packed[:0], b.scratch...)
	x.count += h.Count()
	x.sum += float64(h.sumHi)*(1<<64) + float64(h.sumLo)
}

// halve merges neighbours.
func (b *Batches) halve() {
	b.list = paired(b.list)
	b.width *= 2
}

// paired merges neighbours into new batches.
func paired(list []batch) []batch {
	var out []batch
	for pair := range slices.Chunk(list, 2) {
		x := pair[0]
		if len(pair) == 2 {
			x.packed = slices.Clip(packUnion(nil, unpack(x.packed), unpack(pair[1].packed)))
			x.count += pair[1].count
			x.sum += pair[1].sum
		}
		out = append(out, x)
	}
	return out
}

// bucketSeq gives the next non-empty bucket and its count, in rising order; a count of 0 ends it.
type bucketSeq func() (bucket int, count uint64)

// buckets reads h.
func (h *Hist) buckets() bucketSeq {
	i := h.lo
	return func() (int, uint64) {
		for ; i < h.hi; i++ {
			if c := h.counts[i]; c > 0 {
				i++
				return i - 1, c
			}
		}
		return 0, 0
	}
}

// unpack reads a packed batch.
func unpack(packed []byte) bucketSeq {
	bucket := 0
	return func() (int, uint64) {
		if len(packed) == 0 {
			return 0, 0
		}
		step, n := binary.Uvarint(packed)
		count, m := binary.Uvarint(packed[n:])
		packed = packed[n+m:]
		bucket += int(step)
		return bucket, count
	}
}

// packUnion appends the sum of a and b to dst.
func packUnion(dst []byte, a, b bucketSeq) []byte {
	last := 0
	put := func(bucket int, count uint64) {
		dst = binary.AppendUvarint(dst, uint64(bucket-last))
		dst = binary.AppendUvarint(dst, count)
		last = bucket
	}
	i, n := a()
	k, m := b()
	for n > 0 || m > 0 {
		switch {
		case m == 0 || n > 0 && i < k:
			put(i, n)
			i, n = a()
		case n == 0 || k < i:
			put(k, m)
			k, m = b()
		default:
			put(i, n+m)
			i, n = a()
			k, m = b()
		}
	}
	return dst
}

// atMost counts the samples in buckets up to and with the one given.
func (x *batch) atMost(bucket int) uint64 {
	var sum uint64
	for next := unpack(x.packed); ; {
		i, n := next()
		if n == 0 || i > bucket {
			return sum
		}
		sum += n
	}
}

// cluster is what one batch has of some quantity: part of size, such as samples at most x, of samples.
type cluster struct{ part, size float64 }

// ratio is the share part / size over all clusters with the variance of that estimate when clusters are independent and of any size: the
// linearised variance of a ratio (Cochran, Sampling Techniques, 3rd ed., 1977, eq. 6.13).
func ratio(list []cluster) (share, variance float64) {
	var part, size float64
	for _, c := range list {
		part += c.part
		size += c.size
	}
	if size == 0 {
		return 0, 0
	}
	share = part / size
	for _, c := range list {
		d := c.part - c.size*share
		variance += d * d
	}
	b := float64(len(list))
	return share, variance * b / (b - 1) / (size * size)
}

// carried is the lag-1 autocorrelation of the clusters' deviations from their common share: how much a batch resembles the one before.
func carried(list []cluster) float64 {
	share, _ := ratio(list)
	var same, next, last float64
	for i, c := range list {
		d := c.part - c.size*share
		same += d * d
		if i > 0 {
			next += d * last
		}
		last = d
	}
	if same == 0 {
		return 0
	}
	return next / same
}

// clustersFewest is where merging of dependent batches ends.
const clustersFewest = 8

// independent merges neighbours until a batch tells nothing of the next, as far as a correlation above one standard error tells, or fewer
// than 16 are left.
func independent(list []cluster) []cluster {
	for len(list) >= 2*clustersFewest && carried(list) > 1/math.Sqrt(float64(len(list))) {
		var half []cluster
		for pair := range slices.Chunk(list, 2) {
			c := pair[0]
			if len(pair) == 2 {
				c.part += pair[1].part
				c.size += pair[1].size
			}
			half = append(half, c)
		}
		list = half
	}
	return list
}
