//! The cluster's keys, as far as clients prove that they have one: whoever does is an admin.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

/// Keys of 32 bytes, each derived from a secret of the cluster for logins, and used for nothing else. While the
/// cluster's key is exchanged for another one there are several. Never shown. Clones are one: what is set in one
/// is set in all.
#[derive(Clone)]
pub struct ClusterKeys(Arc<RwLock<Vec<[u8; 32]>>>);

impl ClusterKeys {
    /// From their bytes.
    #[must_use]
    pub fn new(keys: Vec<[u8; 32]>) -> Self {
        Self(Arc::new(RwLock::new(keys)))
    }

    /// From now on, these count and no others. Who has logged in by another one stays so.
    pub(crate) fn set(&self, keys: Vec<[u8; 32]>) {
        *self.0.write() = keys;
    }

    /// The first for which this holds.
    pub(crate) fn find(&self, holds: impl Fn(&[u8; 32]) -> bool) -> Option<[u8; 32]> {
        self.0.read().iter().find(|key| holds(key)).copied()
    }
}

impl fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKeys(…)")
    }
}
