// Package xxhash is xxHash64 with seed 0, by which all clients and nodes know keys. Pure.
package xxhash

import (
	"encoding/binary"
	"math/bits"
)

const (
	prime1 uint64 = 11400714785074694791
	prime2 uint64 = 14029467366897019727
	prime3 uint64 = 1609587929392839161
	prime4 uint64 = 9650029242287828579
	prime5 uint64 = 2870177450012600261
)

// Sum64 is the hash of these bytes; it allocates nothing.
func Sum64[T ~string | ~[]byte](key T) uint64 {
	n := len(key)
	var h uint64
	at := 0
	if n >= 32 {
		v1, v2, v3, v4 := prime1, prime2, uint64(0), uint64(0)
		v1 += prime2
		v4 -= prime1
		for ; at+32 <= n; at += 32 {
			v1 = round(v1, word8(key, at))
			v2 = round(v2, word8(key, at+8))
			v3 = round(v3, word8(key, at+16))
			v4 = round(v4, word8(key, at+24))
		}
		h = bits.RotateLeft64(v1, 1) + bits.RotateLeft64(v2, 7) + bits.RotateLeft64(v3, 12) + bits.RotateLeft64(v4, 18)
		h = merge(h, v1)
		h = merge(h, v2)
		h = merge(h, v3)
		h = merge(h, v4)
	} else {
		h = prime5
	}
	h += uint64(n)
	for ; at+8 <= n; at += 8 {
		h ^= round(0, word8(key, at))
		h = bits.RotateLeft64(h, 27)*prime1 + prime4
	}
	if at+4 <= n {
		h ^= uint64(word4(key, at)) * prime1
		h = bits.RotateLeft64(h, 23)*prime2 + prime3
		at += 4
	}
	for ; at < n; at++ {
		h ^= uint64(key[at]) * prime5
		h = bits.RotateLeft64(h, 11) * prime1
	}
	h ^= h >> 33
	h *= prime2
	h ^= h >> 29
	h *= prime3
	return h ^ h>>32
}

func round(acc, input uint64) uint64 {
	return bits.RotateLeft64(acc+input*prime2, 31) * prime1
}

func merge(acc, v uint64) uint64 {
	return (acc^round(0, v))*prime1 + prime4
}

func word8[T ~string | ~[]byte](key T, at int) uint64 {
	var b [8]byte
	copy(b[:], key[at:at+8])
	return binary.LittleEndian.Uint64(b[:])
}

func word4[T ~string | ~[]byte](key T, at int) uint32 {
	var b [4]byte
	copy(b[:], key[at:at+4])
	return binary.LittleEndian.Uint32(b[:])
}
