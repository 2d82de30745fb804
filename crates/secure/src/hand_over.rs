//! What nodes tell each other of cluster keys, over sealed links only: the keys that were ordered over the
//! network ([`Handed`]), and which keys each node has ([`Report`]). A frame of its own kind,
//! [`KEYS_FRAME`].
//!
//! ```text
//! [ [secret …], nil or [count, id], [id …], [report …] ]
//!   report: [name, at, [id …], primary, nil or trouble, forgotten]
//! ```
//!
//! Secrets have 32 bytes, ids 4. Elements behind those that are known are ignored, so that there can be more.

use distkv_core::membership::NetworkName;
use distkv_core::protocol::frame::write_frame;
use distkv_core::protocol::peer::KEYS_FRAME;
use distkv_model::ids::{NameError, NodeName};
use distkv_model::value::{
    ReadError, Reader, write_array_len, write_bin, write_bool, write_nil, write_str, write_u64,
};

use crate::key::{ID_BYTES, Key, KeyId, SECRET_BYTES};
use crate::key_ring::handed::Handed;
use crate::key_ring::{KEYS_MAX, REMOVED_MAX, RingSummary, Used};

/// Most reports in one message, and most nodes of which one is kept: as many as membership keeps.
pub(crate) const REPORTS_MAX: usize = 1_024;
/// Most bytes of what keeps a node from storing its keys.
const TROUBLE_BYTES_MAX: usize = 256;

/// Which keys a node has, as it says itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The node.
    pub name: NodeName,
    /// When it said so, by its own clock, milliseconds since 1970. Of two reports the later one counts.
    pub at: u64,
    /// Its keys.
    pub ring: RingSummary,
    /// Why it cannot keep them: they are gone after a restart.
    pub trouble: Option<String>,
    /// The node does not come back: it was forgotten, or has left for good.
    pub is_gone: bool,
}

impl Report {
    /// What the node keeps over a restart, as far as that is known: nothing if it cannot keep it.
    #[must_use]
    pub fn kept(&self) -> Option<&RingSummary> {
        self.trouble.is_none().then_some(&self.ring)
    }
}

/// All that one message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOver {
    /// What was ordered over the network.
    pub handed: Handed,
    /// What nodes say of their keys.
    pub reports: Vec<Report>,
}

/// Why a message was not understood: its sender is broken or hostile.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HandOverError {
    /// Not the MessagePack that belongs there.
    #[error("bad message about keys: {0}")]
    Read(#[from] ReadError),
    /// A name that no node can have.
    #[error("bad message about keys: {0}")]
    Name(#[from] NameError),
    /// A list that is longer than allowed.
    #[error("a message about keys has {count} {what}; at most {max} are allowed")]
    TooMany {
        /// The list that is too long.
        what: &'static str,
        /// How many there were.
        count: usize,
        /// How many are allowed.
        max: usize,
    },
    /// Something that has a fixed length and has not.
    #[error("a message about keys has a {0} of another length")]
    Length(&'static str),
}

impl HandOver {
    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        write_frame(KEYS_FRAME, out, |out| {
            write_array_len(4, out);
            write_array_len(self.handed.keys.len(), out);
            self.handed.keys.iter().for_each(|key| write_bin(key.secret(), out));
            match self.handed.used {
                Some(Used { count, id }) => {
                    write_array_len(2, out);
                    write_u64(count, out);
                    write_bin(&id.0, out);
                }
                None => write_nil(out),
            }
            write_ids(&self.handed.removed, out);
            write_array_len(self.reports.len(), out);
            self.reports.iter().for_each(|report| write_report(report, out));
        });
    }

    /// Reads a frame's body; `network`: that of the sealed link that it came over.
    ///
    /// # Errors
    /// [`HandOverError`]; the link should be closed with it.
    pub fn decode(body: &[u8], network: &NetworkName) -> Result<Self, HandOverError> {
        let mut reader = Reader::new(body);
        let r = &mut reader;
        r.read_array_len()?;
        let mut keys = Vec::new();
        for _ in 0..bounded(r.read_array_len()?, "keys", KEYS_MAX)? {
            let secret: [u8; SECRET_BYTES] =
                r.read_bin()?.try_into().map_err(|_| HandOverError::Length("secret"))?;
            keys.push(Key::new(secret));
        }
        let used = if r.take_nil() {
            None
        } else {
            let elements = r.read_array_len()?;
            let used = Used { count: r.read_u64()?, id: read_id(r)? };
            skip_rest(r, elements, 2)?;
            Some(used)
        };
        let removed = read_ids(r, REMOVED_MAX)?;
        let mut reports = Vec::new();
        for _ in 0..bounded(r.read_array_len()?, "reports", REPORTS_MAX)? {
            reports.push(read_report(r)?);
        }
        let handed = Handed { network: network.clone(), keys, used, removed };
        Ok(Self { handed, reports })
    }
}

/// What keeps a node from storing its keys, no longer than allowed, on one line.
#[must_use]
pub fn trouble_text(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let end = (0..=TROUBLE_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()
}

fn bounded(count: usize, what: &'static str, max: usize) -> Result<usize, HandOverError> {
    if count > max { Err(HandOverError::TooMany { what, count, max }) } else { Ok(count) }
}

fn skip_rest(r: &mut Reader<'_>, elements: usize, known: usize) -> Result<(), ReadError> {
    for _ in known..elements {
        r.read_raw()?;
    }
    Ok(())
}

fn read_id(r: &mut Reader<'_>) -> Result<KeyId, HandOverError> {
    let id: [u8; ID_BYTES] = r.read_bin()?.try_into().map_err(|_| HandOverError::Length("id"))?;
    Ok(KeyId(id))
}

fn read_ids(r: &mut Reader<'_>, max: usize) -> Result<Vec<KeyId>, HandOverError> {
    let mut ids = Vec::new();
    for _ in 0..bounded(r.read_array_len()?, "ids", max)? {
        ids.push(read_id(r)?);
    }
    Ok(ids)
}

fn write_ids(ids: &[KeyId], out: &mut Vec<u8>) {
    write_array_len(ids.len(), out);
    ids.iter().for_each(|id| write_bin(&id.0, out));
}

fn read_report(r: &mut Reader<'_>) -> Result<Report, HandOverError> {
    let elements = r.read_array_len()?;
    let name = NodeName::new(r.read_str()?)?;
    let at = r.read_u64()?;
    let ring = RingSummary { ids: read_ids(r, KEYS_MAX)?, primary: read_id(r)? };
    let trouble = if r.take_nil() { None } else { Some(trouble_text(r.read_str()?)) };
    let is_gone = r.read_bool()?;
    skip_rest(r, elements, 6)?;
    Ok(Report { name, at, ring, trouble, is_gone })
}

fn write_report(report: &Report, out: &mut Vec<u8>) {
    write_array_len(6, out);
    write_str(report.name.as_str(), out);
    write_u64(report.at, out);
    write_ids(&report.ring.ids, out);
    write_bin(&report.ring.primary.0, out);
    match &report.trouble {
        Some(trouble) => write_str(trouble, out),
        None => write_nil(out),
    }
    write_bool(report.is_gone, out);
}

#[cfg(test)]
mod tests {
    use distkv_core::protocol::frame::split_frame;
    use proptest::prelude::*;

    use super::*;

    fn network() -> NetworkName {
        NetworkName::new("plant").unwrap()
    }

    fn sample() -> HandOver {
        let ids = [Key::new([1; 32]), Key::new([2; 32])].map(|key| key.id());
        let report = Report {
            name: NodeName::new("n1").unwrap(),
            at: 1 << 41,
            ring: RingSummary { ids: ids.to_vec(), primary: ids[0] },
            trouble: None,
            is_gone: false,
        };
        let other = Report {
            name: NodeName::new("n2").unwrap(),
            trouble: Some("read-only".to_owned()),
            is_gone: true,
            ..report.clone()
        };
        let handed = Handed {
            network: network(),
            keys: vec![Key::new([2; 32])],
            used: Some(Used { count: 3, id: ids[1] }),
            removed: vec![ids[0]],
        };
        HandOver { handed, reports: vec![report, other] }
    }

    fn body(message: &HandOver) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let frame = split_frame(&bytes, 1 << 20).unwrap().unwrap();
        assert_eq!((frame.kind, frame.length), (KEYS_FRAME, bytes.len()));
        frame.body.to_vec()
    }

    #[test]
    fn a_message_comes_back_as_it_was() {
        let none = Handed { keys: vec![], used: None, removed: vec![], ..sample().handed };
        assert!(none.is_empty() && !sample().handed.is_empty());
        for message in [sample(), HandOver { handed: none, reports: vec![] }] {
            assert_eq!(HandOver::decode(&body(&message), &network()), Ok(message));
        }
    }

    #[test]
    fn lists_are_bounded_and_lengths_are_checked() {
        let mut message = sample();
        message.handed.keys = (0..=KEYS_MAX as u8).map(|byte| Key::new([byte; 32])).collect();
        let error = HandOver::decode(&body(&message), &network()).unwrap_err();
        assert_eq!(error, HandOverError::TooMany { what: "keys", count: 5, max: 4 });
        let short = [0x94, 0x91, 0xc4, 1, 7];
        let error = HandOver::decode(&short, &network()).unwrap_err();
        assert_eq!(error, HandOverError::Length("secret"));
    }

    #[test]
    fn trouble_is_one_short_line() {
        let text = trouble_text(&format!("a\nb\x1b{}", "é".repeat(200)));
        assert!(text.starts_with("a b é") && text.len() <= TROUBLE_BYTES_MAX, "{text}");
        assert_eq!(trouble_text("short"), "short");
    }

    proptest! {
        #[test]
        fn damaged_messages_never_panic(at in 0usize..200, byte: u8, cut in 0usize..40) {
            let mut bytes = body(&sample());
            if at < bytes.len() { bytes[at] = byte; }
            let bytes = bytes.get(..bytes.len().saturating_sub(cut)).unwrap();
            let _ = HandOver::decode(bytes, &network());
        }
    }
}
