//! SelfSubjectReview: the identity of the client that asks. Not stored.

use crate::engine::kind::Kind;

pub(crate) static KIND: Kind = Kind::of("authentication.k8s.io", "selfsubjectreviews");
