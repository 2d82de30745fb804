//! The words of the protocol: names of fields and actions, distinguished by one number each.
//!
//! A message has half a dozen of them. Comparing each with all known words, or in full length, took
//! longer than looking the entry up; a number is found among constants by a few comparisons.

/// A number for a word. Other words may have the same one, so a match must be compared.
pub(super) const fn fold(word: &[u8]) -> u64 {
    let mixed = if let (Some(first), Some(last)) = (word.first_chunk(), word.last_chunk()) {
        u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(23)
    } else if let (Some(first), Some(last)) = (word.first_chunk(), word.last_chunk()) {
        u32::from_le_bytes(*first) as u64 | (u32::from_le_bytes(*last) as u64) << 32
    } else if let (Some(first), Some(last)) = (word.first_chunk(), word.last_chunk()) {
        u16::from_le_bytes(*first) as u64 | (u16::from_le_bytes(*last) as u64) << 16
    } else if let Some(only) = word.first() {
        *only as u64
    } else {
        0
    };
    mixed ^ (word.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::super::action::Action;
    use super::super::field::Field;
    use super::*;

    #[test]
    fn words_of_any_length_differ_where_they_differ() {
        let words: Vec<String> = (0..40).flat_map(|n| ["a", "b"].map(|c| c.repeat(n))).collect();
        for a in &words {
            for b in &words {
                assert_eq!(fold(a.as_bytes()) == fold(b.as_bytes()), a == b, "{a} {b}");
            }
        }
    }

    #[test]
    fn what_is_nearly_a_word_is_none() {
        assert_eq!(Field::of(b"seq"), Some(Field::Seq));
        assert_eq!(Action::of(b"get_tree_internal"), Some(Action::GetTreeInternal));
        assert_eq!(Action::of(b"enumerate"), Some(Action::Enum));
        for word in [&b""[..], b"s", b"se", b"seqs", b"seq\0", b"get_tree_Internal", b"get_tree_"] {
            assert_eq!((Field::of(word), Action::of(word)), (None, None), "{word:?}");
        }
    }
}
