//! How lives of nodes and events are written as text: the one place that spells them and reads
//! them back.
//!
//! | what | spelling |
//! |---|---|
//! | a node | its name: `n3` |
//! | one life of it | `n3~e9001b2c3d4e`: name and incarnation, in lower-case hexadecimal digits |
//! | an event | `n3~e9001b2c3d4e:43`: the life, and the tick that it gave the change |
//!
//! A spelling depends on nothing that a node happens to know, so it is the same at every node, in
//! every reply, log line and file, for ever. It is injective: leading zeros and upper-case digits
//! are refused, so there is exactly one text for each life. A bare name is not a life: it never
//! stands for the life that the node has at present.

use std::fmt;
use std::str::FromStr;

use crate::ids::{Incarnation, NameError, NodeId, NodeName, Tick};

/// Most hexadecimal digits of an incarnation.
const DIGITS_MAX: usize = 16;

/// Why a text names no life or no event. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpellingError {
    /// A name without an incarnation.
    #[error(
        "'{name}' names a node, not one life of it; write it as replies do: {name}~LIFE, where \
         LIFE is 1 to 16 hexadecimal digits, like {name}~e9001b2c3d4e"
    )]
    Bare {
        /// The name, as far as it is shown.
        name: String,
    },
    /// The text after the `~` is not an incarnation.
    #[error(
        "behind '~' there must be 1 to 16 lower-case hexadecimal digits without leading zeros, \
         as in n3~e9001b2c3d4e"
    )]
    Digits,
    /// The text before the `~` is not a name.
    #[error("{0}")]
    Name(#[from] NameError),
    /// An event without a good tick.
    #[error("an event is a life and its tick from 1, as in n3~e9001b2c3d4e:43")]
    Tick,
}

/// One life of one node, borrowed. It displays as its spelling.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LifeRef<'a> {
    /// A valid node name.
    pub name: &'a str,
    /// Which of the node's lives.
    pub incarnation: Incarnation,
}

impl<'a> LifeRef<'a> {
    /// Reads a spelling, without allocation.
    ///
    /// # Errors
    /// [`SpellingError`]; the text names no life.
    pub fn parse(text: &'a str) -> Result<Self, SpellingError> {
        let Some((name, digits)) = text.split_once('~') else {
            NodeName::check(text)?;
            return Err(SpellingError::Bare { name: text.to_owned() });
        };
        NodeName::check(name)?;
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_canonical = (1..=DIGITS_MAX).contains(&digits.len())
            && digits.bytes().all(is_digit)
            && (digits == "0" || !digits.starts_with('0'));
        let number = is_canonical.then(|| u64::from_str_radix(digits, 16).ok()).flatten();
        let incarnation = Incarnation(number.ok_or(SpellingError::Digits)?);
        Ok(Self { name, incarnation })
    }

    /// One of its events, with any tick.
    #[must_use]
    pub fn event(self, tick: u64) -> EventSpelling<'a> {
        EventSpelling { life: self, tick }
    }

    /// Length of the spelling in bytes.
    #[must_use]
    pub fn spelled_len(self) -> usize {
        self.name.len() + 1 + digits_of(self.incarnation)
    }

    /// Appends the spelling; no other allocation than what the buffer needs.
    pub fn spell_into(self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.name.as_bytes());
        out.push(b'~');
        for place in (0..digits_of(self.incarnation)).rev() {
            let digit = (self.incarnation.0 >> (4 * place)) & 0xf;
            // Below 16.
            let digit = digit as u8;
            out.push(if digit < 10 { b'0' + digit } else { b'a' + (digit - 10) });
        }
    }
}

/// How many hexadecimal digits an incarnation has: at least one.
fn digits_of(incarnation: Incarnation) -> usize {
    (16 - incarnation.0.leading_zeros() as usize / 4).max(1)
}

impl fmt::Display for LifeRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{:x}", self.name, self.incarnation.0)
    }
}

/// An event, borrowed, to be displayed as its spelling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventSpelling<'a> {
    life: LifeRef<'a>,
    tick: u64,
}

impl fmt::Display for EventSpelling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.life, self.tick)
    }
}

impl NodeId {
    /// The same, borrowed.
    #[must_use]
    pub fn as_life(&self) -> LifeRef<'_> {
        LifeRef { name: self.name.as_str(), incarnation: self.incarnation }
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_life().fmt(f)
    }
}

impl FromStr for NodeId {
    type Err = SpellingError;

    fn from_str(text: &str) -> Result<Self, SpellingError> {
        let LifeRef { name, incarnation } = LifeRef::parse(text)?;
        Ok(Self { name: NodeName::new(name)?, incarnation })
    }
}

/// One change made at one node, with its maker's name. It displays as its spelling.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NamedEvent {
    /// The life that made it.
    pub life: NodeId,
    /// Its number there, from 1.
    pub tick: Tick,
}

impl fmt::Display for NamedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.life.as_life().event(self.tick.get()).fmt(f)
    }
}

impl FromStr for NamedEvent {
    type Err = SpellingError;

    fn from_str(text: &str) -> Result<Self, SpellingError> {
        // A name may have colons, a life's digits and a tick have none.
        let (life, tick) = text.rsplit_once(':').ok_or(SpellingError::Tick)?;
        let life = life.parse()?;
        let is_canonical = tick.bytes().all(|byte| byte.is_ascii_digit()) && !tick.starts_with('0');
        let tick = is_canonical.then(|| tick.parse().ok().and_then(Tick::new)).flatten();
        Ok(Self { life, tick: tick.ok_or(SpellingError::Tick)? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::limits::NAME_BYTES_MAX;
    use crate::spelling::*;

    /// Longest spelling of a life in bytes.
    const LIFE_BYTES_MAX: usize = NAME_BYTES_MAX + 1 + DIGITS_MAX;

    fn life(name: &str, incarnation: u64) -> NodeId {
        NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(incarnation) }
    }

    #[test]
    fn a_life_is_its_name_and_its_incarnation_in_hexadecimal_digits() {
        for (id, text) in [
            (life("n3", 0xe900_1b2c_3d4e), "n3~e9001b2c3d4e"),
            (life("n3", 0), "n3~0"),
            (life("n3", 0xf), "n3~f"),
            (life("n3", 0x10), "n3~10"),
            (life("a:b", u64::MAX), "a:b~ffffffffffffffff"),
        ] {
            assert_eq!(id.to_string(), text);
            assert_eq!(text.parse(), Ok(id));
        }
        let event = NamedEvent { life: life("n3", 0xab), tick: Tick::new(43).unwrap() };
        assert_eq!(event.to_string(), "n3~ab:43");
        assert_eq!("n3~ab:43".parse(), Ok(event));
    }

    #[test]
    fn a_bare_name_is_no_life_and_the_error_says_what_to_write() {
        let error = LifeRef::parse("n3").unwrap_err();
        assert_eq!(error, SpellingError::Bare { name: "n3".into() });
        assert!(error.to_string().contains("n3~LIFE"), "{error}");
        assert_eq!("n3:43".parse::<NamedEvent>(), Err(error));
    }

    #[test]
    fn there_is_no_second_way_to_spell_a_life_or_an_event() {
        for text in ["n3~", "n3~00ab", "n3~AB", "n3~xyz", "n3~+1", "n3~1~2", "n3~00000000000000001"]
        {
            assert_eq!(LifeRef::parse(text), Err(SpellingError::Digits), "{text}");
        }
        for text in ["", "~ab", "a b~1", "a b"] {
            assert!(matches!(LifeRef::parse(text), Err(SpellingError::Name(_))), "{text}");
        }
        for text in ["n3~ab", "n3~ab:", "n3~ab:0", "n3~ab:07", "n3~ab:+7", "n3~ab:-7", "n3~ab:x"] {
            assert_eq!(text.parse::<NamedEvent>(), Err(SpellingError::Tick), "{text}");
        }
        let too_great = format!("n3~ab:{}", 1_u64 << 62);
        assert_eq!(too_great.parse::<NamedEvent>(), Err(SpellingError::Tick));
    }

    fn lives() -> impl Strategy<Value = NodeId> {
        let name = prop_oneof![
            // Few names and few digits, so that near misses are common.
            "[n:]{1,2}[0-9a-f]{0,2}",
            "[^~\\s\\p{Cc}]{1,16}",
        ];
        let incarnation = prop_oneof![0..64_u64, any::<u64>(), (1_u64 << 47)..(1 << 48)];
        (name, incarnation).prop_map(|(name, incarnation)| life(&name, incarnation))
    }

    proptest! {
        #[test]
        fn spellings_round_trip(id in lives(), tick in 1..(1_u64 << 62)) {
            let text = id.to_string();
            prop_assert_eq!(text.parse::<NodeId>(), Ok(id.clone()));
            let mut bytes = Vec::new();
            id.as_life().spell_into(&mut bytes);
            prop_assert_eq!(&bytes, text.as_bytes());
            prop_assert_eq!(id.as_life().spelled_len(), text.len());
            prop_assert!(text.len() <= LIFE_BYTES_MAX);
            let event = NamedEvent { life: id, tick: Tick::new(tick).unwrap() };
            prop_assert_eq!(event.to_string().parse::<NamedEvent>(), Ok(event));
        }

        #[test]
        fn two_events_have_two_spellings(a in lives(), b in lives(), x in 1..50_u64, y in 1..50_u64) {
            prop_assert_eq!(a == b, a.to_string() == b.to_string());
            let event = |life: &NodeId, tick| NamedEvent { life: life.clone(), tick: Tick::new(tick).unwrap() };
            let (one, other) = (event(&a, x), event(&b, y));
            prop_assert_eq!(one == other, one.to_string() == other.to_string());
        }

        #[test]
        fn what_is_read_is_written_again_as_it_was(text in "[n3~:0-9a-fA-F +]{0,12}") {
            if let Ok(id) = text.parse::<NodeId>() {
                prop_assert_eq!(id.to_string(), text.clone());
            }
            if let Ok(event) = text.parse::<NamedEvent>() {
                prop_assert_eq!(event.to_string(), text);
            }
        }
    }
}
