//! The user that a certificate names, as upstream's `CommonNameUserConversion` reads it.

use crate::certificate::Certificate;
use crate::text::shortened;
use machinery_meta::UserInfo;
use ring::digest;
use std::fmt::Write as _;

const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The certificate is good, and names no user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    #[error("expected 1 UID, but found multiple: [{0}]")]
    SeveralUids(String),
    #[error("UID cannot be an empty string")]
    EmptyUid,
}

/// `None` where there is no common name.
pub(crate) fn user(leaf: &Certificate<'_>) -> Result<Option<UserInfo>, UserError> {
    let name = leaf.name.common_name();
    if name.is_empty() {
        return Ok(None);
    }
    let uids: Vec<&str> = leaf.name.user_ids().collect();
    let uid = match uids.as_slice() {
        [] => "",
        [""] => return Err(UserError::EmptyUid),
        [uid] => uid,
        all => return Err(UserError::SeveralUids(shortened(&all.join(" ")))),
    };
    let mut user = UserInfo::named(name, leaf.name.organizations());
    uid.clone_into(&mut user.uid);
    user.extra
        .insert(CREDENTIAL_ID.to_owned(), vec![credential_id(leaf.der)]);
    Ok(Some(user))
}

fn credential_id(der: &[u8]) -> String {
    let mut id = "X509SHA256=".to_owned();
    for byte in digest::digest(&digest::SHA256, der).as_ref() {
        let _ = write!(id, "{byte:02x}");
    }
    id
}
