//! Refusals of containerd and of the connection to it, in their words.

use tonic::Status;

/// The connection broke. The source distinguishes it from an answer of the daemon's.
pub(crate) fn lost() -> Status {
    Status::from_error(Box::new(std::io::Error::from(
        std::io::ErrorKind::ConnectionReset,
    )))
}

/// No daemon listens on the socket.
pub(crate) fn down() -> Status {
    let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    let mut status = Status::unavailable("tcp connect error");
    status.set_source(std::sync::Arc::new(refused));
    status
}

/// The client's own deadline, as tonic's transport has it.
pub(crate) fn timed_out() -> Status {
    Status::cancelled("Timeout expired")
}

pub(crate) fn cancelled() -> Status {
    Status::cancelled("context canceled")
}

pub(crate) fn failed_by_itself() -> Status {
    Status::unknown("failed to create shim task: the machine of this test fails")
}

pub(crate) fn unknown_here(what: &str) -> Status {
    Status::unimplemented(format!("{what} is not in this model"))
}

/// containerd's look-up of something that is not there.
pub(crate) fn not_found(looking: &str, kind: &str, id: &str) -> Status {
    Status::not_found(format!("{looking} {kind} {id:?}: not found"))
}

pub(crate) fn reserved(kind: &str, name: &str, holder: &str) -> Status {
    Status::unknown(format!(
        "failed to reserve {kind} name {name:?}: name {name:?} is reserved for {holder:?}"
    ))
}
