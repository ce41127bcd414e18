//! LocalSubjectAccessReview: the rights of a user in a namespace. Not stored.

use crate::engine::kind::Kind;

pub(crate) static KIND: Kind = Kind::of("authorization.k8s.io", "localsubjectaccessreviews");
