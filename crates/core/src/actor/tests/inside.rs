//! What only tests ask of a member, and set in it.

use crate::actor::{Actor, Role};
use crate::model::ids::{Millis, NodeName};
use crate::model::ping::{ConfigError, ConfigVersion};

/// One on the elected list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::actor) struct ListMember {
    /// Its name.
    pub(in crate::actor) name: NodeName,
    /// Milliseconds since it was heard itself, or came on the list unheard; 0 for this member. On
    /// a list of n, about n cycles are normal.
    pub(in crate::actor) silent_ms: Millis,
}

impl Actor {
    /// The elected list, with how long each was silent.
    pub(in crate::actor) fn list_members(
        &self,
        now: Millis,
    ) -> impl Iterator<Item = ListMember> + '_ {
        self.roster.iter().map(move |listed| ListMember {
            name: listed.name.clone(),
            silent_ms: match listed.name == self.me {
                true => 0,
                false => now.saturating_sub(listed.heard_at),
            },
        })
    }

    /// The configuration that is followed.
    pub(in crate::actor) fn config(&self) -> &ConfigVersion {
        &self.config
    }

    /// What this member does in its group.
    pub(in crate::actor) fn role(&self) -> Role {
        self.role
    }

    /// Whether this member may be elected before those that are not ready.
    pub(in crate::actor) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// What decides between this member and others in a collision: the greater one wins. Counts
    /// from its next claim on.
    pub(in crate::actor) fn set_value(&mut self, value: u64) {
        self.value = value;
    }

    /// Accepts a configuration that was set here, if it is greater than the present one, and sends
    /// it; returns whether it was accepted.
    ///
    /// # Errors
    /// [`ConfigError`] names a value that is out of range. Nothing was changed.
    pub(in crate::actor) fn adopt_config(
        &mut self,
        config: ConfigVersion,
    ) -> Result<bool, ConfigError> {
        config.check()?;
        if config <= self.config {
            return Ok(false);
        }
        self.follow_config(config);
        self.has_new_config = true;
        Ok(true)
    }
}
