//! Failed calls of the runtime as upstream's kubelet prints them.

use node_cri::CriError;
use node_plugin_api::calls;
use tonic::Code;

/// `rpc error: code = X desc = Y`, or our own words.
pub(crate) fn rpc_text(error: &CriError) -> String {
    match error {
        CriError::Call { status, .. } => calls::rpc_text(status),
        other => other.to_string(),
    }
}

/// The same of a failed pull: a code that says nothing is left out (`cri-client`, `PullImage`).
pub(crate) fn pull_text(error: &CriError) -> String {
    match error.code() {
        Some(Code::Unknown) => error.message(),
        _ => rpc_text(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_is_told_without_a_code_that_says_nothing() {
        for (code, expected) in [
            (Code::Unknown, "no"),
            (Code::NotFound, "rpc error: code = NotFound desc = no"),
            (Code::Cancelled, "rpc error: code = Canceled desc = no"),
        ] {
            let status = Box::new(tonic::Status::new(code, "no"));
            let action = "pull";
            let error = CriError::Call { action, status };
            assert_eq!(pull_text(&error), expected);
        }
        let (action, reason) = ("pull", "too long".to_owned());
        assert_eq!(pull_text(&CriError::Invalid { action, reason }), "pull: too long");
    }
}
