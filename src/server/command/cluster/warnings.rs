//! All that an operator should be warned of, in one list: `status`, `members` and the page tell its texts, the metric
//! `distkv_warnings` its kinds. So none is told in one place and missing in another.

use distkv_access::users::{Role, Warning as OddPolicy};

use super::delete_group::contents_warnings;
use crate::engine::MemoryExcess;
use crate::model::count::count_of;
use crate::model::ids::Millis;
use crate::server::info::{ClientLogStatus, ScheduledStatus, SilentInfo, StorageStatus};
use crate::server::purge_block::{PurgeBlock, left_out_text, mark_text};
use crate::server::{Shared, ignored_login, unenforced_warning};

macro_rules! kinds {
    ($($kind:ident = $word:literal,)*) => {
        /// What a warning is of.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum WarningKind {
            $($kind,)*
        }

        impl WarningKind {
            /// All kinds, in the order of the table of metrics.
            pub(crate) const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The label of the metric.
            pub(crate) fn word(self) -> &'static str {
                match self {
                    $(Self::$kind => $word,)*
                }
            }
        }
    };
}

kinds! {
    Disk = "disk",
    Snapshot = "snapshot",
    Purge = "purge",
    Memory = "memory",
    ClientLog = "client_log",
    Split = "split",
    ScheduledSnapshot = "scheduled_snapshot",
    Certificate = "certificate",
    Counter = "counter",
    Clients = "clients",
    Link = "link",
    Datagrams = "datagrams",
    Logins = "logins",
    Access = "access",
    Contents = "contents",
    Audit = "audit",
    Grace = "grace",
    Unenforced = "unenforced",
    DiskRoom = "disk_room",
}

/// One line for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Warning {
    pub(crate) kind: WarningKind,
    pub(crate) text: String,
    /// It names users and lists.
    is_for_admins: bool,
}

impl Warning {
    /// Whether a client of this role is told.
    pub(crate) fn is_told(&self, role: Option<Role>) -> bool {
        !self.is_for_admins || role == Some(Role::Admin)
    }
}

#[derive(Default)]
struct Warnings(Vec<Warning>);

impl Warnings {
    fn add(&mut self, kind: WarningKind, texts: impl IntoIterator<Item = String>) {
        let warning = |text| Warning { kind, text, is_for_admins: false };
        self.0.extend(texts.into_iter().map(warning));
    }
}

impl Shared {
    /// All that an operator should be warned of now. `asking`: how many of the clients without a login ask for this.
    pub(in crate::server) fn warnings(&self, now: Millis, asking: usize) -> Vec<Warning> {
        use WarningKind as Kind;
        let (info, hub) = (&self.info, &self.hub);
        let (used_up, excess, tree, group, contents) = hub.read(|engine| {
            let tree = engine.tree().clone();
            let group = engine.group_view(now);
            let contents = contents_warnings(engine);
            (engine.used_up().or(engine.far_clock()), engine.memory_excess(), tree, group, contents)
        });
        let mut all = Warnings::default();
        let storage = info.storage();
        all.add(Kind::Disk, storage.as_ref().and_then(StorageStatus::log_warning));
        all.add(Kind::DiskRoom, storage.as_ref().and_then(|storage| storage.room_warning.clone()));
        all.add(Kind::Snapshot, storage.as_ref().and_then(StorageStatus::snapshot_warning));
        let scheduled = info.scheduled();
        all.add(Kind::ScheduledSnapshot, scheduled.as_ref().and_then(ScheduledStatus::warning));
        let log = info.status().client_log;
        all.add(Kind::ClientLog, log.as_ref().and_then(ClientLogStatus::warning));
        all.add(Kind::Memory, excess.map(MemoryExcess::text));
        all.add(Kind::Counter, used_up.map(String::from));
        all.add(Kind::Clients, hub.scarce());
        all.add(Kind::Clients, self.logins.present.scarce());
        all.add(Kind::Certificate, info.certificate_warning());
        all.add(Kind::Link, info.slow_links());
        all.add(Kind::Logins, self.isolation().map(|error| error.text));
        // What an operator has chosen is of another kind: there is no alert for it.
        all.add(Kind::Grace, self.grace_warning(asking));
        all.add(Kind::Unenforced, unenforced_warning(&tree));
        // That as well, but whoever forgets it leaves the data open.
        all.add(Kind::Access, ignored_login(&tree, hub.closing.is_closed()));
        let directory = self.policy_data.directory(hub);
        let is_odd = |warning: &&OddPolicy| !matches!(warning, OddPolicy::NoDefault(_));
        let odd = directory.warnings().iter().filter(is_odd).map(|warning| Warning {
            kind: Kind::Access,
            text: warning.to_string(),
            is_for_admins: true,
        });
        all.0.extend(odd);
        all.add(Kind::Purge, PurgeBlock::of(&group).iter().map(PurgeBlock::text));
        all.add(Kind::Purge, left_out_text(&group).into_iter().chain(mark_text(&group)));
        all.add(Kind::Contents, contents);
        all.add(Kind::Audit, self.config.audit.iter().flat_map(|audit| audit.warnings(now)));
        all.add(Kind::Split, info.silent().iter().flat_map(SilentInfo::warnings));
        all.add(Kind::Link, info.unlinked());
        all.add(Kind::Datagrams, info.unheard());
        all.0
    }

    /// Logins are switched on, and some time is left without them.
    fn grace_warning(&self, asking: usize) -> Option<String> {
        let left = self.grace_ms()?;
        let others = self.logins.present.without_login().saturating_sub(asking);
        let others = match others {
            0 => String::from("no such client is"),
            count => count_of(count as u64, "such client is", "such clients are"),
        };
        Some(format!(
            "logins are switched on, and {} s of the time are left in which clients without one are served; {others} \
             connected to this node",
            left / 1_000
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use distkv_metrics::{Label, Name};

    #[test]
    fn the_metric_has_each_kind() {
        let [Label::Fixed(_, values)] = Name::Warnings.metric().unwrap().labels else { panic!() };
        let words: Vec<&str> = WarningKind::ALL.iter().map(|kind| kind.word()).collect();
        assert_eq!(*values, words);
    }
}
