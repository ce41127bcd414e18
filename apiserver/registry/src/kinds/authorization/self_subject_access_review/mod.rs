//! SelfSubjectAccessReview: a right of the client that asks. Not stored.

use crate::engine::kind::Kind;

pub(crate) static KIND: Kind = Kind::of("authorization.k8s.io", "selfsubjectaccessreviews");
