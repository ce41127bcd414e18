//! Bound on the content of API objects in volumes: a pod may name one large key ten thousand times.

use crate::VolumeError;

/// An object holds a MiB: as much as 32 of them.
const VOLUME_BYTES_MAX: usize = 32 << 20;
const VOLUME_FILES_MAX: usize = 10_000;
const POD_BYTES_MAX: usize = 64 << 20;
const POD_FILES_MAX: usize = 20_000;

/// The room that is left for files.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    whose: &'static str,
    bytes_max: usize,
    files_max: usize,
    bytes: usize,
    files: usize,
}

impl Room {
    fn new(whose: &'static str, bytes_max: usize, files_max: usize) -> Self {
        Self {
            whose,
            bytes_max,
            files_max,
            bytes: 0,
            files: 0,
        }
    }

    /// The whole room of one volume.
    pub(crate) fn of_volume() -> Self {
        Self::new("a volume", VOLUME_BYTES_MAX, VOLUME_FILES_MAX)
    }

    /// The whole room of a pod's volumes together.
    pub(crate) fn of_pod() -> Self {
        Self::new("a pod's volumes", POD_BYTES_MAX, POD_FILES_MAX)
    }

    /// Takes the room of a file. One that a later file replaces has taken its room, too.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), VolumeError> {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        let beyond = if self.files > self.files_max {
            format!("{} files", self.files_max)
        } else if self.bytes > self.bytes_max {
            format!("{} bytes", self.bytes_max)
        } else {
            return Ok(());
        };
        Err(VolumeError::Invalid(format!(
            "{} must not hold more than {beyond} from API objects",
            self.whose
        )))
    }
}
