//! Bytes of the messages with which two nodes compare and repair contents (replication rule 10), and back.

use super::field_codec::{bounded, read_id, read_mark, read_tick, read_tock, write_mark};
use super::{ContentsAsk, ContentsList, ContentsTold, Listed, PeerError};
use crate::model::ids::{NODE_TABLE_MAX, NodeId, NodeTable};
use crate::model::path::Path;
use crate::model::seen::Mark;
use crate::model::value::{
    Reader, write_array_len, write_bin, write_bool, write_nil, write_str, write_u64,
};
use crate::protocol::frame::write_frame;
use crate::tree::content_sums::BUCKET_COUNT;

pub(super) const CONTENTS_ASK: u8 = 27;
pub(super) const CONTENTS_LIST: u8 = 28;
pub(super) const CONTENTS_WANT: u8 = 29;
pub(super) const CONTENTS_VERSIONS: u8 = 30;

/// Most entries in one list, and most paths that are wanted at once; a sender cuts its frames far
/// below.
pub(crate) const LISTED_MAX: usize = 1 << 16;

/// What a digest says of contents: nil or absent, else `[seen, sum]`.
pub(super) fn read_told(r: &mut Reader<'_>) -> Result<Option<ContentsTold>, PeerError> {
    if r.take_nil() {
        return Ok(None);
    }
    let elements = r.read_array_len()?;
    let told = ContentsTold { seen: r.read_u64()?, sum: r.read_u64()? };
    for _ in 2..elements {
        r.skip()?;
    }
    Ok(Some(told))
}

pub(super) fn write_told(told: Option<ContentsTold>, out: &mut Vec<u8>) {
    match told {
        None => write_nil(out),
        Some(told) => {
            write_array_len(2, out);
            write_u64(told.seen, out);
            write_u64(told.sum, out);
        }
    }
}

fn read_bucket(r: &mut Reader<'_>) -> Result<u16, PeerError> {
    let raw = r.read_u64()?;
    let is_one = |bucket: &u16| usize::from(*bucket) < BUCKET_COUNT;
    u16::try_from(raw).ok().filter(is_one).ok_or(PeerError::Counter(raw))
}

/// Sums that are not 0: array of `bucket, sum, bucket, sum …`.
pub(super) fn read_ask(r: &mut Reader<'_>) -> Result<ContentsAsk, PeerError> {
    let (mark, seen, differed) = (read_mark(r)?, r.read_u64()?, r.read_bool()?);
    let count = bounded(r.read_array_len()?, "numbers of buckets", 2 * BUCKET_COUNT)?;
    if count % 2 != 0 {
        return Err(PeerError::Counter(count as u64));
    }
    let mut sums = Vec::new();
    for _ in 0..count / 2 {
        sums.push((read_bucket(r)?, r.read_u64()?));
    }
    Ok(ContentsAsk { mark, seen, differed, sums })
}

pub(super) fn write_ask(ask: &ContentsAsk, out: &mut Vec<u8>) {
    write_frame(CONTENTS_ASK, out, |out| {
        write_array_len(4, out);
        write_mark(&ask.mark, out);
        write_u64(ask.seen, out);
        write_bool(ask.differed, out);
        write_array_len(2 * ask.sums.len(), out);
        for (bucket, sum) in &ask.sums {
            write_u64(u64::from(*bucket), out);
            write_u64(*sum, out);
        }
    });
}

/// The makers of all listed versions come first; an entry names its maker by the place there:
/// array of `[path, maker, tick, tock, hash]`.
pub(super) fn read_list(r: &mut Reader<'_>) -> Result<ContentsList, PeerError> {
    let (mark, differs) = (read_mark(r)?, r.read_bool()?);
    let count = bounded(r.read_array_len()?, "buckets", BUCKET_COUNT)?;
    let mut buckets = Vec::new();
    for _ in 0..count {
        buckets.push(read_bucket(r)?);
    }
    let (last, answer_wanted) = (r.read_bool()?, r.read_bool()?);
    let count = bounded(r.read_array_len()?, "incarnations", NODE_TABLE_MAX)?;
    let mut makers = Vec::new();
    for _ in 0..count {
        r.read_array_len()?;
        makers.push(read_id(r)?);
    }
    let count = bounded(r.read_array_len()?, "listed entries", LISTED_MAX)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let elements = r.read_array_len()?;
        let path = Path::from_canonical(r.read_bin()?)?;
        let raw = r.read_u64()?;
        let maker = usize::try_from(raw).ok().filter(|at| *at < makers.len());
        let maker = maker.ok_or(PeerError::Counter(raw))?;
        let (tick, tock, hash) = (read_tick(r)?, read_tock(r)?, r.read_u64()?);
        entries.push(Listed { path, maker, tick, tock, hash });
        for _ in 5..elements {
            r.skip()?;
        }
    }
    Ok(ContentsList { mark, differs, buckets, last, answer_wanted, makers, entries })
}

pub(super) fn write_list(list: &ContentsList, out: &mut Vec<u8>) {
    write_frame(CONTENTS_LIST, out, |out| {
        write_array_len(7, out);
        write_mark(&list.mark, out);
        write_bool(list.differs, out);
        write_array_len(list.buckets.len(), out);
        list.buckets.iter().for_each(|bucket| write_u64(u64::from(*bucket), out));
        write_bool(list.last, out);
        write_bool(list.answer_wanted, out);
        write_array_len(list.makers.len(), out);
        for NodeId { name, incarnation } in &list.makers {
            write_array_len(2, out);
            write_str(name.as_str(), out);
            write_u64(incarnation.0, out);
        }
        write_array_len(list.entries.len(), out);
        for listed in &list.entries {
            write_array_len(5, out);
            write_bin(listed.path.as_bytes(), out);
            write_u64(listed.maker as u64, out);
            write_u64(listed.tick.get(), out);
            write_u64(listed.tock.get(), out);
            write_u64(listed.hash, out);
        }
    });
}

pub(super) fn read_want(r: &mut Reader<'_>) -> Result<Vec<Path>, PeerError> {
    let count = bounded(r.read_array_len()?, "wanted paths", LISTED_MAX)?;
    let mut paths = Vec::new();
    for _ in 0..count {
        paths.push(Path::from_canonical(r.read_bin()?)?);
    }
    Ok(paths)
}

pub(super) fn write_want(paths: &[Path], out: &mut Vec<u8>) {
    write_frame(CONTENTS_WANT, out, |out| {
        write_array_len(1, out);
        write_array_len(paths.len(), out);
        paths.iter().for_each(|path| write_bin(path.as_bytes(), out));
    });
}

/// Appends versions that the peer wants as a frame.
pub(crate) fn encode_versions(
    mark: &Mark,
    entries: &[(Path, crate::model::entry::Entry)],
    table: &NodeTable,
    out: &mut Vec<u8>,
) {
    write_frame(CONTENTS_VERSIONS, out, |out| {
        write_array_len(2, out);
        write_mark(mark, out);
        write_array_len(entries.len(), out);
        for (path, entry) in entries {
            crate::protocol::record::encode_record(path.as_bytes(), entry, table, out);
        }
    });
}
