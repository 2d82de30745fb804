//! Data on disk: `save`, `log` and `update`, as clients of the original have them, `snapshot`,
//! `log_start` and `log_stop`, ours for operators, and how the disk is.
//!
//! Files are written by the node ([`crate::server::NodeInfo::carry_out`]), which decides where a client
//! may have some. Here nothing is known of paths.

use std::sync::Arc;

use crate::engine::{BatchDone, BatchTerms, Operation, WriteOp};
use crate::model::ids::Tock;
use crate::model::value::{Value, write_nil};
use crate::protocol::client::reply::{StreamTag, write_error};
use crate::protocol::client::request::ChainLength;
use crate::protocol::client::stored::StoredChange;
use crate::protocol::client::{Action, ClientError, ErrorCode, MessageWriter};
use crate::replica::write::{Write, Written};
use crate::server::access::authorise::Target;
use crate::server::change_time;
use crate::server::command::access::entries::check_entry;
use crate::server::command::access::{
    check_list_name, demote_for_list, policies_changed, remove_for_record,
};
use crate::server::command::cluster::admin::LongMap;
use crate::server::command::data::value::check_type;
use crate::server::connections::session::{Context, Purpose, Session, Then, WholePath};
use crate::server::info::{FileFormat, FileJob, FileRefusal, FileReport, StorageStatus};

impl Session {
    /// `save`.
    pub(in crate::server) fn save(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        file: &str,
        full: bool,
    ) -> Result<Then, ClientError> {
        let (name, format) = (file.to_owned(), FileFormat::Distkv);
        let job = FileJob::Save { name, format, internal: full };
        self.write_file(cx, seq, Action::Save, job)
    }

    /// `log`.
    pub(in crate::server) fn log(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        file: Option<&str>,
        fetch: bool,
    ) -> Result<Then, ClientError> {
        let job = match file {
            // As in the original.
            Some(file) => FileJob::LogStart {
                name: file.to_owned(),
                format: FileFormat::Distkv,
                fetch,
                replaces: true,
            },
            None => FileJob::LogStop,
        };
        self.write_file(cx, seq, Action::Log, job)
    }

    /// `snapshot`.
    pub(in crate::server) fn snapshot(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        file: Option<&str>,
    ) -> Result<Then, ClientError> {
        let job = match file.map(str::to_owned) {
            Some(name) => FileJob::Save { name, format: FileFormat::Own, internal: true },
            None => FileJob::Snapshot,
        };
        self.write_file(cx, seq, Action::Snapshot, job)
    }

    /// `log_start`.
    pub(in crate::server) fn log_start(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        file: &str,
        distkv: bool,
        fetch: bool,
        replaces: bool,
    ) -> Result<Then, ClientError> {
        let format = if distkv { FileFormat::Distkv } else { FileFormat::Own };
        let job = FileJob::LogStart { name: file.to_owned(), format, fetch, replaces };
        self.write_file(cx, seq, Action::LogStart, job)
    }

    /// `log_stop`.
    pub(in crate::server) fn log_stop(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
    ) -> Result<Then, ClientError> {
        self.write_file(cx, seq, Action::LogStop, FileJob::LogStop)
    }

    /// Writes a file as a job of its own.
    fn write_file(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        action: Action,
        job: FileJob,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, action, Target::Node)?;
        Self::check_ready(cx)?;
        let (info, hub) = (Arc::clone(&cx.shared.info), Arc::clone(&cx.shared.hub));
        let counts = Arc::clone(&cx.shared.counts);
        Ok(Then::heavy(cx, seq, Purpose::to_change(action), move || {
            let done = info.carry_out(job);
            let tock = hub.read(crate::engine::Engine::tock);
            let mut reply = Vec::new();
            match done {
                Ok(report) => write_report(action, &report, seq, tock, &mut reply),
                Err(refusal) => {
                    let error = refused(refusal);
                    counts.note_error(&error);
                    write_error(&error, Some(seq), tock, &mut reply);
                }
            }
            reply
        }))
    }

    /// `update`: makes a stored change again, if it is newer than the present entry. It becomes a
    /// change of this node: a client must not be able to say that another node made it.
    pub(in crate::server) fn update(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        change: &StoredChange<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        let path = self.resolve(cx, Action::Update, &change.path)?.to_path();
        let writer = self.writer(cx);
        writer.check(path.as_bytes(), change.value.is_some())?;
        check_entry(cx, writer, path.as_bytes(), change.value)?;
        cx.check_storage()?;
        match change.value {
            Some(_) => check_list_name(path.as_bytes())?,
            None => demote_for_list(cx, path.as_bytes()),
        }
        let stored = match change.value {
            Some(value) => check_type(cx, &WholePath::Joined(path.clone()), value)?,
            None => None,
        };
        let value = stored.as_ref().map(Value::as_bytes).or(change.value);
        let write = Write { idempotent: true, above: change.above, ..Write::new(&path, value) };
        let op = WriteOp { tock: Some(change.tock), ..WriteOp::new(write) };
        // What allows it is of the present policies, or it is not made.
        let checked = Some(cx.access.policies);
        let time = change_time();
        let terms = BatchTerms { with_names: true, checked, time, ..BatchTerms::WHOLE };
        let (done, number) = cx.hub.write_batch([Operation::Write(op)], terms);
        let BatchDone { outcomes, tock, names, .. } = done;
        let outcome = outcomes.into_iter().flatten().next().ok_or_else(policies_changed)?;
        let Written { entry, is_made, .. } = outcome
            .into_written()
            .map_err(|error| crate::server::command::data::value::engine_error(&error))?;
        // Here, too, the record of a user follows what was changed of it.
        demote_for_list(cx, path.as_bytes());
        if is_made && change.value.is_none() {
            remove_for_record(cx, path.as_bytes());
        }
        let from = out.len();
        let mut message = MessageWriter::new(out);
        message.bool("changed", is_made);
        if let (Some(entry), Some(names)) = (&entry, &names) {
            names.names().write_chain(entry, ChainLength::of(1), message.key("chain"));
        }
        message.tock(entry.as_ref().map_or(tock, |entry| entry.tock())).u64("seq", seq);
        if is_made {
            self.unsynced.note(from, out.len(), number, StreamTag { seq, wseq: None });
        }
        Ok(Then::Continue)
    }
}

/// Clients of the original want `result: true`; for ours there is more to know.
fn write_report(action: Action, report: &FileReport, seq: u64, tock: Tock, out: &mut Vec<u8>) {
    let mut message = MessageWriter::new(out);
    match action {
        Action::Save | Action::Log => {
            message.bool("result", true);
        }
        Action::LogStop => {
            message.bool("result", report.name.is_some());
            if let Some(why) = &report.failed {
                message.str("failed", why);
            }
        }
        _ => write_details(report, message.key("result")),
    }
    if report.left_out > 0 {
        message.u64("left_out", report.left_out);
    }
    message.u64("seq", seq).tock(tock);
}

fn write_details(report: &FileReport, out: &mut Vec<u8>) {
    let mut map = LongMap::default();
    if let Some(name) = &report.name {
        map.str("file", name);
    }
    for (key, value) in [("entries", report.entries), ("bytes", report.bytes)] {
        if let Some(value) = value {
            map.u64(key, value);
        }
    }
    map.finish(out);
}

fn refused(refusal: FileRefusal) -> ClientError {
    match refusal {
        FileRefusal::NotAllowed => ClientError::new(
            ErrorCode::Denied,
            "clients may not have files written here; this node's operator can allow a directory \
             with --client-files",
        ),
        FileRefusal::NoDataDirectory => ClientError::new(
            ErrorCode::Denied,
            "this node keeps its data in memory; start it with --data-dir, or name a file",
        ),
        FileRefusal::Busy => {
            ClientError::new(ErrorCode::TooMany, "a file is being written already; try again later")
        }
        FileRefusal::Name(text) => ClientError::bad_request(text),
        FileRefusal::Failed(text) => ClientError::new(ErrorCode::StorageFailed, text),
    }
}

/// How the disk is, for `status` and `get_state`; nil for a node that keeps its data in memory.
pub(in crate::server::command) fn write_storage(status: Option<&StorageStatus>, out: &mut Vec<u8>) {
    let Some(status) = status else { return write_nil(out) };
    let mut map = LongMap::default();
    map.str("directory", &status.directory);
    map.str("sync", status.sync);
    map.u64("store", status.store);
    map.u64("appended", status.appended);
    map.u64("written", status.written);
    map.u64("synced", status.synced);
    map.u64("waiting_bytes", status.waiting_bytes);
    match &status.failure {
        Some((why, _)) => map.str("failed", why),
        None => write_nil(map.key("failed")),
    }
    map.optional_u64("failed_ms", status.failure.as_ref().map(|(_, ms)| *ms));
    map.u64("failures", status.failures);
    map.optional_u64("log", status.log.map(|(number, _)| number));
    map.optional_u64("log_bytes", status.log.map(|(_, bytes)| bytes));
    map.optional_u64("bytes", status.bytes);
    map.optional_u64("disk_free_bytes", status.room.map(|(free, _)| free));
    map.optional_u64("disk_size_bytes", status.room.map(|(_, size)| size));
    map.u64("since_snapshot_bytes", status.since_snapshot_bytes);
    map.optional_u64("past_ms", status.past.map(|(time_ms, _)| time_ms));
    map.optional_u64("past_tock", status.past.map(|(_, tock)| tock));
    match &status.snapshot {
        None => write_nil(map.key("snapshot")),
        Some(snapshot) => {
            let mut inner = LongMap::default();
            inner.str("file", &snapshot.file);
            inner.u64("entries", snapshot.entries);
            inner.u64("bytes", snapshot.bytes);
            inner.u64("time_ms", snapshot.time_ms);
            inner.optional_u64("age_ms", snapshot.age_ms);
            inner.finish(map.key("snapshot"));
        }
    }
    map.bool("saving", status.is_saving);
    match &status.snapshot_failure {
        Some(why) => map.str("snapshot_failed", why),
        None => write_nil(map.key("snapshot_failed")),
    }
    map.finish(out);
}
