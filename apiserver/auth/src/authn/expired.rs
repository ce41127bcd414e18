//! Credentials that say of themselves that their time is over.
//!
//! Such credentials are good for nothing, whatever signed them: they are refused without a signature being checked. A
//! client that gets `Unauthorized` for them fetches new ones (client-go's exec plugins and token files).

use super::Credentials;
use super::token::tokens_of;
use crate::jwt;

/// Difference of clocks that is tolerated, as for a token that is verified.
const LEEWAY_SECONDS: i64 = super::service_account::LEEWAY_SECONDS;

/// Reports whether all credentials of a request, a certificate or a token that names its times, are over by their own word.
/// `false` where there are none.
pub fn have_expired(credentials: &Credentials<'_>) -> bool {
    let now = credentials.now.as_second();
    let tokens = tokens_of(credentials.headers).map(|token| {
        let expires = jwt::unverified_expiry(&token);
        expires.is_some_and(|expires| expires.saturating_add(LEEWAY_SECONDS) < now)
    });
    let certificate = credentials.peer.map(|peer| {
        let ends = peer.not_after();
        ends.is_some_and(|ends| ends < credentials.now)
    });
    let mut all = tokens.chain(certificate).peekable();
    all.peek().is_some() && all.all(|is_over| is_over)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::PeerCertificate;
    use crate::pki::{Pki, ServingNames};
    use http::header::AUTHORIZATION;
    use http::{HeaderMap, HeaderValue};
    use jiff::Timestamp;
    use serde_json::json;

    #[test]
    fn credentials_that_are_over_say_so_without_a_check() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let key = jwt::SigningKey::generate().unwrap();
        let token = |expires: i64| jwt::sign(&key, &json!({"exp": now.as_second() + expires})).unwrap();
        let pki = Pki::generate(&ServingNames::default(), now).unwrap();
        let own = pki.cluster.client("anna", None, now).unwrap();
        let peer = PeerCertificate::new(own.chain()).unwrap();
        let over = now + jiff::SignedDuration::from_hours(24 * 366 * 20);
        let check = |token: Option<String>, peer: Option<&PeerCertificate>, now, expected: bool| {
            let mut headers = HeaderMap::new();
            if let Some(token) = &token {
                let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
                headers.insert(AUTHORIZATION, value);
            }
            let credentials = Credentials {
                peer,
                headers: &headers,
                path: "/",
                client: None,
                now,
            };
            assert_eq!(have_expired(&credentials), expected, "{token:?}");
        };
        check(None, None, now, false);
        check(Some(token(-61)), None, now, true);
        for good in [
            token(-59),
            token(3_600),
            token(i64::MAX / 2),
            "opaque".into(),
            "a.b.c".into(),
        ] {
            check(Some(good), None, now, false);
        }
        check(None, Some(&peer), now, false);
        check(None, Some(&peer), over, true);
        // Either of them is enough.
        check(Some(token(-61)), Some(&peer), now, false);
        check(Some("opaque".into()), Some(&peer), over, false);
    }
}
