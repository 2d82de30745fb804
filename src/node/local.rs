//! Reading and writing a node's tree from the program that runs it, without a connection. For tests
//! and for programs that embed a node; all others are clients.

use super::Node;
use crate::engine::EngineWriteError;
use crate::model::ids::Tick;
use crate::model::path::Path;
use crate::model::value::Value;
use crate::replica::write::Write;

impl Node {
    /// The value at a path, if there is one.
    #[must_use]
    pub fn get(&self, path: &Path) -> Option<Value> {
        let entry = self.hub().read(|engine| engine.get(path.as_bytes()).cloned())?;
        // What the tree holds was checked when it came in.
        Value::new(entry.value()?).ok()
    }

    /// Sets the value at a path, and pushes it to the peers. Returns the change's tick.
    ///
    /// # Errors
    /// [`EngineWriteError`]; nothing was changed.
    pub fn set(&self, path: &Path, value: &Value) -> Result<Option<Tick>, EngineWriteError> {
        self.write(path, Some(value.as_bytes()))
    }

    /// Deletes the entry at a path. Returns the change's tick; none if there was no entry.
    ///
    /// # Errors
    /// [`EngineWriteError`]; nothing was changed.
    pub fn delete(&self, path: &Path) -> Result<Option<Tick>, EngineWriteError> {
        self.write(path, None)
    }

    fn write(&self, path: &Path, value: Option<&[u8]>) -> Result<Option<Tick>, EngineWriteError> {
        let write = Write::new(path, value);
        let written = self.hub().write(write, false).0?;
        Ok(written.made().map(|entry| entry.newest().tick))
    }
}
