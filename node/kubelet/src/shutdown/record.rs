//! Times of the last shutdown on the disk, in upstream's form, for the agent that starts when the machine is up again.

use std::io;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

const FILE: &str = "graceful_node_shutdown_state";
const BYTES_MAX: u64 = 4096;
/// Go's time that is none.
const NO_TIME: &str = "0001-01-01T00:00:00Z";

/// Begin and end of a shutdown, as far as they are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ShutdownRecord {
    pub(super) started: Option<Timestamp>,
    pub(super) ended: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    start_time: String,
    end_time: String,
}

impl ShutdownRecord {
    /// The last one, or an empty one. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, or holds something else.
    pub(super) fn load(folder: &Path) -> io::Result<Self> {
        let bytes = match node_sys::fs::read_regular(&folder.join(FILE), BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            bytes => bytes?,
        };
        let written: Written = serde_json::from_slice(&bytes)?;
        Ok(Self {
            started: time(&written.start_time)?,
            ended: time(&written.end_time)?,
        })
    }

    /// Writes it down so that a power cut leaves it. Blocks.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn store(self, folder: &Path) -> io::Result<()> {
        let text = |time: Option<Timestamp>| time.map_or_else(|| NO_TIME.to_owned(), |time| time.to_string());
        let written = Written {
            start_time: text(self.started),
            end_time: text(self.ended),
        };
        let content = serde_json::to_vec(&written)?;
        node_sys::fs::write_durably(&folder.join(FILE), &content, 0o644)
    }
}

fn time(text: &str) -> io::Result<Option<Timestamp>> {
    if text == NO_TIME {
        return Ok(None);
    }
    text.parse().map(Some).map_err(io::Error::other)
}
