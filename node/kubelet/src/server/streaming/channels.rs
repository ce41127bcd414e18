//! Channels of a remote command session, for all protocols.

use bytes::Bytes;
use tokio::sync::mpsc;

/// Pieces on their way in either direction, of at most 32 KiB; beyond it the faster side waits.
pub(super) const PIECES_MAX: usize = 8;

/// Messages from the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    /// Bytes for standard input.
    Stdin(Bytes),
    /// No more of them.
    StdinEnd,
    /// The terminal's size.
    Resize {
        /// Columns.
        width: u16,
        /// Rows.
        height: u16,
    },
}

/// Messages to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    /// Bytes of standard output.
    Stdout(Bytes),
    /// Bytes of standard error.
    Stderr(Bytes),
    /// Outcome of the session, a `Status` object, sent last.
    Verdict(Bytes),
}

/// The two directions of a session. When `input` ends the client has gone.
#[derive(Debug)]
pub(crate) struct Channels {
    /// From the client.
    pub(crate) input: mpsc::Receiver<Input>,
    /// To the client.
    pub(crate) output: mpsc::Sender<Output>,
}

/// Streams that a client requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Wanted {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

impl Wanted {
    /// Reads a request's parameters, in the API server's or the kubelet's spelling.
    pub(super) fn of(query: &super::super::query::Query) -> Self {
        let either = |a: &str, b: &str| query.flag(a) || query.flag(b);
        let tty = query.flag("tty");
        Self {
            stdin: either("input", "stdin"),
            stdout: either("output", "stdout"),
            stderr: either("error", "stderr") && !tty,
            tty,
        }
    }

    pub(super) fn any(self) -> bool {
        self.stdin || self.stdout || self.stderr
    }
}

/// The verdict on a command that ended.
pub(super) fn verdict(exit_code: i32) -> Bytes {
    let value = if exit_code == 0 {
        serde_json::json!({"metadata": {}, "status": "Success"})
    } else {
        serde_json::json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: exit status {exit_code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": exit_code.to_string()}]},
        })
    };
    value.to_string().into()
}

/// The verdict on a session that could not be.
pub(super) fn failure(message: &str) -> Bytes {
    serde_json::json!({
        "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
        "message": format!("Internal error occurred: {message}"),
        "details": {"causes": [{"message": message}]},
    })
    .to_string()
    .into()
}
