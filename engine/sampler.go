//blast:hot

package engine

// sampleRun is the number of consecutive slots of a worker that are sampled together, so that their stamps tell the gaps between them too.
const sampleRun = 16

// sampler picks the packets that are followed by stamps: in every block of sampleRun x every slots one run of sampleRun, at a place drawn by
// seed. Both threads of a worker have one and find the same answer from a slot's number alone. For one thread; the zero value picks nothing.
type sampler struct {
	block uint64 // slots in a block; 0 = none
	seed  uint64
	first uint64 // first slot of the first block: those before it are warm-up
	at    uint64 // first slot of the present block
	run   uint64 // first slot of its run
	id    uint32 // of that slot
}

func newSampler(every, seed, first uint64) sampler {
	if every == 0 {
		return sampler{}
	}
	s := sampler{block: sampleRun * every, seed: seed, first: first}
	s.enter(first)
	return s
}

// pick returns the id of a slot, 0 when it is not sampled. Ids of the slots of a run are consecutive, and rise from run to run.
func (s *sampler) pick(seq uint64) uint32 {
	if seq-s.at >= s.block {
		if s.block == 0 || seq < s.first {
			return 0
		}
		s.enter(seq)
	}
	if k := seq - s.run; k < sampleRun {
		return s.id + uint32(k)
	}
	return 0
}

// enter goes to the block of seq.
func (s *sampler) enter(seq uint64) {
	n := (seq - s.first) / s.block
	s.at = s.first + n*s.block
	s.run = s.at + scatter(s.seed+n)%(s.block-sampleRun+1)
	s.id = uint32(n)*sampleRun + 1
}

// startsRun says whether an id is the first of its run.
func startsRun(id uint32) bool { return (id-1)%sampleRun == 0 }

// scatter is the output function of splitmix64 (Steele, Lea, Flood 2014): a bijection whose low bits look random.
func scatter(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
