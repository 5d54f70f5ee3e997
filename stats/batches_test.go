package stats

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestBatchesHoldEverySample(t *testing.T) {
	// However long the run and whatever the order of slices: no more than 64 batches, and together they are all samples, bucket for bucket.
	rapid.Check(t, func(t *rapid.T) {
		b, whole, h := &Batches{}, &Hist{}, &Hist{}
		slices := rapid.IntRange(1, 400).Draw(t, "slices")
		sum := 0.0
		for range rapid.IntRange(1, 100).Draw(t, "adds") {
			h.Reset()
			for range rapid.IntRange(0, 20).Draw(t, "samples") {
				v := rapid.Int64Range(0, HistMax).Draw(t, "ns")
				h.Record(v)
				sum += float64(v)
			}
			b.Add(int64(rapid.IntRange(0, slices-1).Draw(t, "slice")), h)
			whole.Add(h)
		}
		if len(b.list) > batchesMost {
			t.Fatalf("%d batches", len(b.list))
		}
		got := together(b.list)
		if got.counts != whole.counts {
			t.Fatal("buckets differ")
		}
		var count uint64
		total := 0.0
		for _, x := range b.list {
			count += x.count
			total += x.sum
			if x.atMost(HistBuckets) != x.count {
				t.Fatalf("a batch counts %d and holds %d", x.count, x.atMost(HistBuckets))
			}
		}
		if count != whole.Count() || math.Abs(total-sum) > 1e-9*sum {
			t.Fatalf("count %d and sum %v, want %d and %v", count, total, whole.Count(), sum)
		}
	})
}

func TestBatchesHalve(t *testing.T) {
	b, h := &Batches{}, &Hist{}
	for i := range int64(1000) {
		h.Reset()
		h.Record(i)
		b.Add(i, h)
	}
	if b.width != 16 || len(b.list) != 63 { // 1000/16 = 62.5
		t.Fatalf("width %d, %d batches", b.width, len(b.list))
	}
	for i, x := range b.list {
		if want := uint64(min(1000-16*i, 16)); x.count != want || x.atMost(16*i-1) != 0 || x.atMost(16*i+15) != want {
			t.Fatalf("batch %d holds %d, below it %d", i, x.count, x.atMost(16*i-1))
		}
	}
	b.Add(-1, h) // what no slice can be is of the first
	if b.list[0].count != 17 {
		t.Errorf("first batch %d", b.list[0].count)
	}
}

func TestBatchesMemory(t *testing.T) {
	// Ten minutes of latencies over three octaves in every slice: the memory of a series stays below 1 MB.
	b, h := &Batches{}, &Hist{}
	for s := range int64(600) {
		h.Reset()
		for v := int64(100_000); v < 800_000; v += 150 {
			h.Record(v + s%150)
		}
		b.Add(s, h)
	}
	size := cap(b.scratch)
	for _, x := range b.list {
		size += cap(x.packed)
	}
	if size > 1<<20 {
		t.Errorf("%d batches take %d bytes", len(b.list), size)
	}
}

func TestRatio(t *testing.T) {
	// By hand. Equal sizes: the shares 0.1, 0.2, 0.3 have mean 0.2 and variance of the mean 0.01/3.
	share, variance := ratio([]cluster{{1, 10}, {2, 10}, {3, 10}})
	if math.Abs(share-0.2) > 1e-15 || math.Abs(variance-0.01/3) > 1e-15 {
		t.Errorf("share %v variance %v", share, variance)
	}
	// Unequal sizes: 4 of 10; deviations 1-0.4*1 and 3-0.4*9, variance (0.36+0.36) * 2/1 / 100.
	share, variance = ratio([]cluster{{1, 1}, {3, 9}})
	if math.Abs(share-0.4) > 1e-15 || math.Abs(variance-0.0144) > 1e-15 {
		t.Errorf("share %v variance %v", share, variance)
	}
	if share, variance := ratio(nil); share != 0 || variance != 0 {
		t.Errorf("of nothing: %v %v", share, variance)
	}
}

func TestIndependent(t *testing.T) {
	alternating, climbing := make([]cluster, 64), make([]cluster, 64)
	for i := range alternating {
		alternating[i] = cluster{float64(i % 2), 2}
		climbing[i] = cluster{float64(i), 100}
	}
	if n := len(independent(alternating)); n != 64 {
		t.Errorf("batches that repel each other were merged into %d", n)
	}
	if n := len(independent(climbing)); n != clustersFewest {
		t.Errorf("a climb ends in %d batches, want %d", n, clustersFewest)
	}
}
