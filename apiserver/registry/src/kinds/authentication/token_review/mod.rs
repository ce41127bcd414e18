//! TokenReview: the identity behind a token. Not stored.

use crate::engine::kind::Kind;

pub(crate) static KIND: Kind = Kind::of("authentication.k8s.io", "tokenreviews");
