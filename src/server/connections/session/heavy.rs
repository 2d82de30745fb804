//! Requests that take long: they run on threads of their own, a few at a time. Meanwhile their client may lose the right to
//! what it has asked for, so that is looked up again when there is a thread, and when there is an answer.

use std::sync::Arc;

use super::{Context, Session, Then};
use crate::model::path::Path;
use crate::protocol::client::{Action, ClientError};
use crate::rt;
use crate::server::Shared;
use crate::server::access::Access;
use crate::server::access::authorise::Target;
use crate::server::access::sight::authorise_still;
use crate::server::command::access::policies_changed;

/// What such a request is for.
pub(in crate::server) struct Purpose {
    action: Action,
    /// The whole path that it is about; none: the node.
    at: Option<Path>,
    /// It changes something, and its answer tells only what has become of that.
    is_change: bool,
}

impl Purpose {
    /// To be told something, of the node or of all data.
    pub(in crate::server) fn to_read(action: Action) -> Self {
        Self { action, at: None, is_change: false }
    }

    /// To be told of a path.
    pub(in crate::server) fn to_read_at(action: Action, at: Path) -> Self {
        Self { action, at: Some(at), is_change: false }
    }

    /// To change something. Its answer goes to the client whatever that may do by then: "denied" would say that nothing
    /// was done.
    pub(in crate::server) fn to_change(action: Action) -> Self {
        Self { action, at: None, is_change: true }
    }

    fn check(&self, access: &Access) -> Result<(), ClientError> {
        let target = self.at.as_ref().map_or(Target::Node, |path| Target::Path(path.as_bytes()));
        authorise_still(access, self.action, target)
    }
}

/// Something that takes long: it runs on a thread of its own, and makes the reply's bytes.
pub(in crate::server) struct HeavyJob {
    /// Of the request.
    pub(in crate::server) seq: u64,
    pub(in crate::server) work: Box<dyn FnOnce() -> Vec<u8> + Send>,
    /// Its reply tells nothing of the data: it goes out also if clients are shut out by then.
    pub(in crate::server) is_innocuous: bool,
    pub(in crate::server) leave: Leave,
}

/// What a job is for, and whose it is.
pub(in crate::server) struct Leave {
    purpose: Purpose,
    /// What its client could do when it asked, and what the work goes by.
    access: Access,
}

impl HeavyJob {
    /// Of the client whose context this is.
    pub(in crate::server) fn new(
        cx: &Context<'_>,
        seq: u64,
        purpose: Purpose,
        work: impl FnOnce() -> Vec<u8> + Send + 'static,
    ) -> Self {
        let leave = Leave { purpose, access: cx.access.clone() };
        Self { seq, work: Box::new(work), is_innocuous: false, leave }
    }
}

impl Then {
    /// A request that takes long.
    pub(in crate::server) fn heavy(
        cx: &Context<'_>,
        seq: u64,
        purpose: Purpose,
        work: impl FnOnce() -> Vec<u8> + Send + 'static,
    ) -> Self {
        Self::Heavy(HeavyJob::new(cx, seq, purpose, work))
    }
}

impl Session {
    /// Whether a job may still begin.
    ///
    /// # Errors
    /// The client has lost the right to it; nothing was done.
    pub(in crate::server) fn may_begin(
        &mut self,
        shared: &Shared,
        leave: &Leave,
    ) -> Result<(), ClientError> {
        let cx = self.context(shared, rt::now());
        leave.purpose.check(&cx.access).inspect_err(|_| {
            if let Some(witness) = &cx.witness {
                witness.cut_short();
            }
        })
    }

    /// Whether the client may be told what a job's answer is.
    ///
    /// # Errors
    /// It has lost the right to it; or it may do something else than what the answer goes by: then it asks again.
    pub(in crate::server) fn may_be_told(
        &mut self,
        shared: &Shared,
        leave: &Leave,
    ) -> Result<(), ClientError> {
        if leave.purpose.is_change {
            return Ok(());
        }
        self.may_begin(shared, leave)?;
        let now = self.context(shared, rt::now()).access;
        let (before, rights) = (&leave.access, &now.rights);
        let is_same = Arc::ptr_eq(&before.rights, rights)
            || (before.rights.is_everything() && rights.is_everything());
        if is_same && before.role == now.role { Ok(()) } else { Err(policies_changed()) }
    }
}
