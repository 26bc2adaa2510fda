//! Where a controller keeps what it has to know after a restart.

use std::io;

/// A place for the last state of a controller.
pub trait ControllerStore: Send {
    /// Keeps this state instead of the last one. When it returns, the state survives the controller.
    ///
    /// # Errors
    /// The state is not kept; what it was made for must not be carried out.
    fn save(&mut self, state: &[u8]) -> io::Result<()>;

    /// The state that was kept last; `None`: there is none.
    ///
    /// # Errors
    /// The store cannot be read.
    fn load(&mut self) -> io::Result<Option<Vec<u8>>>;
}

/// Keeps nothing: a controller that ends is forgotten.
#[derive(Debug, Default)]
pub struct MemoryStore;

impl ControllerStore for MemoryStore {
    fn save(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn load(&mut self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
}
