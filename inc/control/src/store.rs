//! Where a controller keeps what it has to know after a restart.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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

    /// Why another controller is in charge of this state now; `None`: this one is.
    fn lost(&self) -> Option<String> {
        None
    }
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

/// Keeps the state in a file, which is replaced as a whole: after a crash it has the state before or the one after.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
}

impl FileStore {
    /// The file need not be there.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    fn folder(&self) -> &Path {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.unwrap_or_else(|| Path::new("."))
    }
}

impl ControllerStore for FileStore {
    fn save(&mut self, state: &[u8]) -> io::Result<()> {
        let next = self.path.with_added_extension("next");
        let mut file = private(&next)?;
        file.write_all(state)?;
        file.sync_all()?;
        fs::rename(&next, &self.path)?;
        // The new name survives, too.
        File::open(self.folder())?.sync_all()
    }

    fn load(&mut self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(&self.path) {
            Ok(state) => Ok(Some(state)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// An empty file that other users cannot read: it has the keys of tickets.
fn private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_has_the_last_state_that_was_saved() {
        let folder = std::env::temp_dir().join(format!("inc-store-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("state");
        let mut store = FileStore::new(&path);
        assert_eq!(store.load().unwrap(), None);
        for state in [&b"first, which is longer"[..], b"second"] {
            store.save(state).unwrap();
            assert_eq!(FileStore::new(&path).load().unwrap().as_deref(), Some(state));
        }
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        // What cannot be saved is an error, and the state before stays.
        let mut nowhere = FileStore::new(folder.join("nowhere/state"));
        assert!(nowhere.save(b"x").is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
