package distkv

import "distkv.example/client/internal/xxhash"

// ShardCount is how many virtual shards a network has.
const ShardCount = 1024

// rootShard is the shard of the root and of the empty string.
const rootShard = 332

// hashKey is xxHash64 with seed 0.
func hashKey[T ~string | ~[]byte](key T) uint64 { return xxhash.Sum64(key) }

// jumpHash is the jump consistent hash (Lamping and Veach, 2014) in the form (b+1) * (2^31/d). All clients compute the
// same shards, so nothing here may change.
func jumpHash(key uint64, buckets int) int {
	bucket, following := int64(-1), int64(0)
	for following < int64(buckets) {
		bucket = following
		key = key*2862933555777941757 + 1
		following = int64(float64(bucket+1) * (float64(int64(1)<<31) / float64(key>>33+1)))
	}
	return int(max(bucket, 0))
}

func shardOfKey[T ~string | ~[]byte](key T) int { return jumpHash(hashKey(key), ShardCount) }
