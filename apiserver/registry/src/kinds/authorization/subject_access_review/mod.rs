//! SubjectAccessReview: a right of a user. Not stored.

use crate::engine::kind::Kind;

pub(crate) static KIND: Kind = Kind::of("authorization.k8s.io", "subjectaccessreviews");
