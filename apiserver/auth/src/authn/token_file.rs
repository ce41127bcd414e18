//! Tokens listed in a file (`--token-auth-file`): lines of `token,user,uid,"group1,group2"`.

use super::token::{ShownToken, TokenAuthenticator};
use super::{Authenticated, AuthnFuture, Outcome};
use machinery_meta::UserInfo;
use ring::digest;
use std::collections::HashMap;
use std::fmt;

/// The file cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileError {
    #[error("line {line} of the token file must have at least 3 columns (token, user name, user uid)")]
    Columns { line: usize },
    #[error("line {line} of the token file has an empty token")]
    Empty { line: usize },
}

/// Users by the digest of their token, so that the time of a lookup reveals nothing.
pub struct TokenFile(HashMap<Vec<u8>, UserInfo>);

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenFile").field(&self.0.len()).finish()
    }
}

fn digest_of(token: &str) -> Vec<u8> {
    digest::digest(&digest::SHA256, token.as_bytes())
        .as_ref()
        .to_vec()
}

impl TokenFile {
    pub fn parse(text: &str) -> Result<Self, TokenFileError> {
        let mut users = HashMap::new();
        for (index, row) in text.lines().enumerate().filter(|(_, row)| !row.trim().is_empty()) {
            let line = index + 1;
            let columns = columns(row);
            let [token, name, uid, rest @ ..] = columns.as_slice() else {
                return Err(TokenFileError::Columns { line });
            };
            if token.is_empty() {
                return Err(TokenFileError::Empty { line });
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default();
            let groups = groups
                .split(',')
                .map(str::trim)
                .filter(|group| !group.is_empty())
                .map(str::to_owned);
            let user = UserInfo {
                name: name.clone(),
                uid: uid.clone(),
                groups: groups.collect(),
                ..UserInfo::default()
            };
            users.insert(digest_of(token), user);
        }
        Ok(Self(users))
    }
}

/// The columns of a CSV line; a quoted one may hold commas.
fn columns(line: &str) -> Vec<String> {
    let mut columns = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => columns.push(String::new()),
            c => columns.last_mut().expect("starts with one column").push(c),
        }
    }
    columns
        .into_iter()
        .map(|column| column.trim().to_owned())
        .collect()
}

impl TokenAuthenticator for TokenFile {
    fn authenticate_token<'a>(&'a self, shown: ShownToken<'a>) -> AuthnFuture<'a, Outcome> {
        let found = self.0.get(&digest_of(shown.token)).cloned();
        let outcome = found.map_or(Outcome::Pass, |user| Outcome::User(Authenticated::new(user)));
        Box::pin(std::future::ready(outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_upstreams() {
        let file = TokenFile::parse("abc,admin,1,\"system:masters, dev\"\n\ndef,jane,2\n").unwrap();
        let admin = &file.0[&digest_of("abc")];
        assert_eq!(
            (admin.name.as_str(), admin.groups.as_slice()),
            ("admin", ["system:masters".into(), "dev".into()].as_slice())
        );
        assert!(file.0[&digest_of("def")].groups.is_empty());
        assert_eq!(
            TokenFile::parse("a,b").unwrap_err(),
            TokenFileError::Columns { line: 1 }
        );
        assert_eq!(
            TokenFile::parse("\n,b,c").unwrap_err(),
            TokenFileError::Empty { line: 2 }
        );
    }
}
