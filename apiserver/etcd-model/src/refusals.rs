//! Errors of etcd, word for word: clients parse them.

use tonic::Status;

pub(crate) fn compacted() -> Status {
    Status::out_of_range("etcdserver: mvcc: required revision has been compacted")
}

pub(crate) fn future() -> Status {
    Status::out_of_range("etcdserver: mvcc: required revision is a future revision")
}

pub(crate) fn no_key() -> Status {
    Status::invalid_argument("etcdserver: key is not provided")
}

pub(crate) fn duplicate_key() -> Status {
    Status::invalid_argument("etcdserver: duplicate key given in txn request")
}

pub(crate) fn too_many_operations() -> Status {
    Status::invalid_argument("etcdserver: too many operations in txn request")
}

pub(crate) fn too_large() -> Status {
    Status::invalid_argument("etcdserver: request is too large")
}

pub(crate) fn no_lease() -> Status {
    Status::not_found("etcdserver: requested lease not found")
}

pub(crate) fn no_leader() -> Status {
    Status::unavailable("etcdserver: no leader")
}

pub(crate) fn lost() -> Status {
    Status::unavailable("the connection was lost")
}

/// An answer that is not etcd's: code that begins to use more of etcd than this model knows has to teach it first.
pub(crate) fn unknown_here(what: &str) -> Status {
    Status::unimplemented(format!("this model of etcd does not know {what}"))
}
