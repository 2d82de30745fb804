//! Files that were not written by this program: of later versions, empty, rubbish, and valid frames
//! around bad content.

use std::io::Cursor;

use proptest::prelude::*;

use super::damage::{OPTIONS, start};
use super::node::{NAME, TestNode, header};
use crate::data_dir::DataDir;
use crate::disk::FileId;
use crate::error::{FileKind, FormatError, StorageError};
use crate::format::framing::Framing;
use crate::format::record::Dictionary;
use crate::header::{Content, FORMAT_VERSION, FileHeader, LogStart, magic, write_header};
use crate::identity::IDENTITY_NAME;
use crate::log::LogReader;
use crate::memory_disk::MemoryDisk;
use crate::model::ids::NodeTable;
use crate::model::value::{Reader, write_array_len, write_bin, write_str, write_u64};
use crate::snapshot::{read_snapshot, verify_snapshot, write_snapshot_to};

fn read_log(bytes: &[u8]) -> Result<u64, StorageError> {
    let mut reader = LogReader::new("file", Box::new(Cursor::new(bytes.to_vec())))?;
    while reader.next()?.is_some() {}
    Ok(reader.end())
}

fn read_snap(bytes: &[u8]) -> Result<u64, StorageError> {
    let source = Box::new(Cursor::new(bytes.to_vec()));
    Ok(verify_snapshot("file", source, &mut |_| {})?.bytes)
}

/// A log of good frames with these payloads behind a good header.
fn log_of(payloads: &[Vec<u8>]) -> Vec<u8> {
    file_of(Content::Log(LogStart::Empty), payloads)
}

fn file_of(content: Content, payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut framing = Framing::new();
    framing.frame(|out| write_header(&header(1, 7), FileId::default(), content, out));
    for payload in payloads {
        framing.frame(|out| out.extend_from_slice(payload));
    }
    framing.bytes().to_vec()
}

fn problem(result: Result<u64, StorageError>) -> FormatError {
    match result {
        Err(StorageError::Damaged { problem, .. } | StorageError::UnknownKind { problem, .. }) => {
            problem
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_of_a_later_version_says_so() {
    for kind in [FileKind::Snapshot, FileKind::Log] {
        let mut framing = Framing::new();
        framing.frame(|out| {
            write_str(magic(kind), out);
            write_u64(FORMAT_VERSION + 1, out);
            write_str("whatever they think of", out);
        });
        let bytes = framing.bytes();
        let result = if kind == FileKind::Log { read_log(bytes) } else { read_snap(bytes) };
        let error = result.unwrap_err();
        assert!(matches!(error, StorageError::FutureVersion { found: 2, known: 1, .. }), "{error}");
        // Not even with that option does a start continue without it: it holds the newest data.
        let options = crate::RecoverOptions { discard_damaged: true, ..OPTIONS };
        let disk = MemoryDisk::new();
        disk.put(if kind == FileKind::Log { "log-1.dkv" } else { "snapshot-1.dkv" }, bytes);
        assert!(matches!(start(&disk, &options), Err(StorageError::FutureVersion { .. })));
    }
}

#[test]
fn rubbish_is_no_file_of_ours() {
    for bytes in [b"PK\x03\x04 whatever this is".to_vec(), vec![0xff; 70_000], vec![0; 16]] {
        for error in [read_log(&bytes).unwrap_err(), read_snap(&bytes).unwrap_err()] {
            assert!(matches!(error, StorageError::NotOne { .. }), "{error}");
        }
    }
    for bytes in [&b""[..], b"dkv"] {
        for error in [read_log(bytes).unwrap_err(), read_snap(bytes).unwrap_err()] {
            assert!(matches!(error, StorageError::Incomplete { offset: 0, .. }), "{error}");
        }
    }
    // One kind is not the other.
    let log = log_of(&[]);
    assert!(matches!(read_snap(&log), Err(StorageError::NotOne { kind: FileKind::Snapshot, .. })));
}

#[test]
fn rubbish_in_a_data_directory_is_refused_and_left_alone() {
    for name in ["log-5.dkv", "snapshot-5.dkv", IDENTITY_NAME] {
        let disk = MemoryDisk::new();
        disk.put(name, b"PK\x03\x04 whatever this is");
        let error = start(&disk, &OPTIONS).err().unwrap();
        assert!(error.to_string().contains(name), "{error}");
        assert!(disk.content(name).is_some());
    }
}

#[test]
fn files_of_others_are_refused() {
    let disk = MemoryDisk::new();
    let dir = DataDir::on(std::sync::Arc::new(disk.clone()));
    let node = TestNode::new(7);
    let knowledge = node.engine.knowledge();
    let mut theirs = header(1, 7);
    theirs.network = "another".into();
    dir.begin_log(&theirs, LogStart::Empty, &knowledge, node.engine.table()).unwrap();
    let error = start(&disk, &OPTIONS).err().unwrap();
    assert!(matches!(&error, StorageError::OtherOwner { file, .. } if file == IDENTITY_NAME));
    crate::disk::Disk::remove(&disk, IDENTITY_NAME).unwrap();
    let error = start(&disk, &OPTIONS).err().unwrap();
    assert!(matches!(&error, StorageError::OtherOwner { file, .. } if file == "log-1.dkv"));
    assert!(error.to_string().contains("\"another\"") && error.to_string().contains(NAME));
}

#[test]
fn a_file_under_another_number_is_refused() {
    let disk = MemoryDisk::new();
    let dir = DataDir::on(std::sync::Arc::new(disk.clone()));
    let node = TestNode::new(7);
    let (knowledge, table) = (node.engine.knowledge(), node.engine.table());
    dir.begin_log(&header(1, 7), LogStart::Empty, &knowledge, table).unwrap();
    dir.save(&header(2, 7), &node.image(), &mut |_| {}).unwrap();
    let renamed = |from, to| {
        let disk = disk.fork();
        crate::disk::Disk::remove(&disk, IDENTITY_NAME).unwrap();
        crate::disk::Disk::rename(&disk, from, to).unwrap();
        start(&disk, &OPTIONS)
    };
    let error = renamed("log-1.dkv", "log-2.dkv").err().unwrap();
    assert!(matches!(error, StorageError::Misnamed { found: 1, .. }), "{error}");
    // A snapshot that is none can be done without.
    let recovered = renamed("snapshot-2.dkv", "snapshot-3.dkv").unwrap();
    let warning = recovered.warnings.iter().map(ToString::to_string).next_back().unwrap();
    assert!(warning.contains("snapshot-3.dkv") && warning.contains("number is 2"), "{warning}");
}

/// What a batch's frames begin with: kind, time, claim.
fn batch_payload(kind: u64, records: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    for number in [kind, 0, 0] {
        write_u64(number, &mut out);
    }
    records(&mut out);
    out
}

/// The record of an entry, from numbers and a path; `tail` follows its chain.
fn entry_record(
    kind: u64,
    path: &[u8],
    tock: u64,
    chain: &[u64],
    tail: &[u8],
    fields: usize,
) -> Vec<u8> {
    let mut out = Vec::new();
    write_array_len(fields, &mut out);
    write_u64(kind, &mut out);
    write_bin(path, &mut out);
    write_u64(tock, &mut out);
    write_array_len(chain.len(), &mut out);
    chain.iter().for_each(|number| write_u64(*number, &mut out));
    out.extend_from_slice(tail);
    out
}

#[test]
fn good_frames_around_bad_records_are_refused_with_what_is_wrong() {
    let node = |out: &mut Vec<u8>| {
        write_array_len(3, out);
        write_u64(17, out);
        write_str("a", out);
        write_u64(7, out);
    };
    let refused = |record: Vec<u8>| {
        let payload = batch_payload(1, |out| {
            node(out);
            out.extend_from_slice(&record);
        });
        problem(read_log(&log_of(&[payload])))
    };
    let path = b"\xa1k";
    let bad: Vec<(Vec<u8>, FormatError)> = vec![
        (entry_record(1, path, 1 << 62, &[0, 1], &[5], 5), FormatError::Counter(1 << 62)),
        (entry_record(1, path, 1, &[0, 0], &[5], 5), FormatError::Counter(0)),
        (entry_record(1, path, 1, &[0, 1 << 62], &[5], 5), FormatError::Counter(1 << 62)),
        (entry_record(1, path, 1, &[3, 1], &[5], 5), FormatError::Incarnation(3)),
        (entry_record(1, path, 1, &[], &[5], 5), FormatError::Chain(0)),
        (entry_record(1, path, 1, &[0], &[5], 5), FormatError::Chain(1)),
        (entry_record(1, path, 1, &[0; 18], &[5], 5), FormatError::Chain(18)),
        (entry_record(0, path, 1, &[0, 1], &[5], 5), FormatError::TooMany(5, "fields in a record")),
        (entry_record(22, path, 1, &[0, 1], &[5], 5), FormatError::Unknown("a record", 22)),
        (
            entry_record(8, path, 1, &[0, 1], &[0xc4, 3, 1, 4, 0], 5),
            FormatError::Kind("an extra field", 4),
        ),
    ];
    for (record, expected) in bad {
        assert_eq!(refused(record), expected);
    }
    let deep = [&[0x91; 70][..], &[0xc0]].concat();
    assert!(matches!(refused(entry_record(1, path, 1, &[0, 1], &deep, 5)), FormatError::Read(_)));
    assert!(matches!(refused(entry_record(1, path, 1, &[0, 1], &[0xc1], 5)), FormatError::Read(_)));
    let path = b"\xd9\x01k";
    assert!(matches!(refused(entry_record(1, path, 1, &[0, 1], &[5], 5)), FormatError::Path(_)));
    // Ranges of ticks: a gap of nothing, none at all, beyond the end of numbers.
    for numbers in
        [&[0, 0, 0, 1][..], &[0, 0], &[0, 0, 1, 0], &[0, u64::MAX, 2, 2], &[0, 0, 1, 1 << 62]]
    {
        let mut record = Vec::new();
        write_array_len(numbers.len() + 1, &mut record);
        write_u64(19, &mut record);
        numbers.iter().for_each(|number| write_u64(*number, &mut record));
        let is_empty = numbers.len() == 2;
        let result = read_log(&log_of(&[batch_payload(1, |out| {
            node(out);
            out.extend_from_slice(&record);
        })]));
        assert_eq!(result.is_ok(), is_empty, "{numbers:?}");
    }
    let frame = batch_payload(3, |_| {});
    assert_eq!(problem(read_log(&log_of(&[frame]))), FormatError::Unknown("a frame", 3));
}

/// A newer version has perhaps written it. Its hash is right, so nothing is damaged, and nothing may be cut off.
#[test]
fn a_kind_that_is_not_known_here_is_no_damage() {
    let with_record = batch_payload(1, |out| {
        out.extend_from_slice(&[0x91, 65]);
    });
    let with_frame = batch_payload(3, |out| out.push(0xc1));
    for (payload, what) in [(with_record, "a record of kind 65"), (with_frame, "a frame of kind 3")]
    {
        let bytes = log_of(&[payload]);
        let disk = MemoryDisk::new();
        disk.put("log-1.dkv", &bytes);
        for discard_damaged in [false, true] {
            let options = crate::RecoverOptions { discard_damaged, ..OPTIONS };
            let error = start(&disk, &options).err().unwrap();
            for said in [error.to_string(), error.for_reader()] {
                assert!(said.contains(what) && said.contains("newer"), "{said}");
                assert!(!said.contains("discard") && !said.contains("good copy"), "{said}");
            }
            assert_eq!(disk.content("log-1.dkv").unwrap(), bytes);
        }
    }
}

#[test]
fn a_snapshot_in_disorder_or_with_other_counts_is_refused() {
    let mut node = TestNode::new(7);
    for n in 0..3 {
        node.set(&format!("k{n}"), Some(n));
    }
    let mut good = Vec::new();
    write_snapshot_to(&mut good, &header(1, 7), FileId::default(), &node.image(), &mut |_| {})
        .unwrap();
    // Taken apart into payloads, to be put together otherwise.
    let mut payloads = Vec::new();
    let mut at = 0;
    while at < good.len() {
        let length = u32::from_le_bytes(good[at..at + 4].try_into().unwrap()) as usize;
        payloads.push(good[at + 8..at + 8 + length].to_vec());
        at += 16 + length;
    }
    assert_eq!(payloads.len(), 4);
    let together = |payloads: &[Vec<u8>]| {
        let mut framing = Framing::new();
        for payload in payloads {
            framing.frame(|out| out.extend_from_slice(payload));
        }
        framing.bytes().to_vec()
    };
    assert_eq!(together(&payloads), good);
    let with = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
        let mut changed = payloads.clone();
        change(&mut changed);
        read_snap(&together(&changed))
    };
    assert!(with(&|_| {}).is_ok());
    let twice = with(&|p| p.insert(2, p[2].clone()));
    assert_eq!(problem(twice), FormatError::Order);
    let counts = with(&|p| p[3][1] += 1);
    assert_eq!(problem(counts), FormatError::Count { what: "entries", found: 3, said: 4 });
    let hash = with(&|p| *p[3].last_mut().unwrap() ^= 1);
    assert_eq!(problem(hash), FormatError::FileHash);
    assert_eq!(problem(with(&|p| drop(p.remove(1)))), FormatError::Lacks("state"));
    assert!(matches!(with(&|p| drop(p.pop())), Err(StorageError::Incomplete { .. })));
    let behind = with(&|p| p.push(vec![5]));
    assert_eq!(problem(behind), FormatError::Trailing);
    assert_eq!(problem(with(&|p| p[2][0] = 9)), FormatError::Unknown("a frame", 9));
    let trailing = [good, vec![0]].concat();
    assert_eq!(problem(read_snap(&trailing)), FormatError::Trailing);
}

#[test]
fn a_file_cannot_name_more_incarnations_than_a_node_can_know() {
    let mut payloads = Vec::new();
    for part in 0..70_u64 {
        payloads.push(batch_payload(0, |out| {
            for n in 0..1_000 {
                write_array_len(3, out);
                write_u64(17, out);
                // The second half names the same one again and again.
                write_str("a", out);
                write_u64((part * 1_000 + n).min(40_000), out);
            }
        }));
    }
    assert_eq!(problem(read_log(&log_of(&payloads))), FormatError::TooManyIncarnations);
}

fn damaged_records(content: &[u8]) {
    let mut nodes = Dictionary::new(NodeTable::new());
    let mut reader = Reader::new(content);
    let mut parts = crate::format::knowledge::KnowledgeParts::default();
    while let Ok(record) = nodes.read(&mut reader) {
        if let crate::format::record::Record::Knowledge { kind, fields } = record {
            let _ = parts.read(kind, fields, &nodes, &mut reader);
        }
    }
    let _ = parts.take();
}

proptest! {
    #[test]
    fn damaged_records_never_panic(
        parts in super::random::parts(), changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6),
        cut in 0_usize..50,
    ) {
        let image = super::random::image_of(parts);
        let mut bytes = Vec::new();
        let header = FileHeader { number: 1, ..header(1, 7) };
        write_snapshot_to(&mut bytes, &header, FileId::default(), &image, &mut |_| {}).unwrap();
        // After the header, without heads and hashes.
        let mut records = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
            if at > 0 {
                records.extend_from_slice(&bytes[at + 9..at + 8 + length]);
            }
            at += 16 + length;
        }
        let length = records.len();
        for (at, byte) in changes {
            records[at % length] = byte;
        }
        records.truncate(length.saturating_sub(cut));
        damaged_records(&records);
    }

    #[test]
    fn random_bytes_are_never_a_file(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        prop_assert!(read_log(&bytes).is_err());
        prop_assert!(read_snap(&bytes).is_err());
        let source = Box::new(Cursor::new(bytes));
        let refused = read_snapshot("file", source, 1, &mut |_| {}).is_err();
        prop_assert!(refused);
    }
}
