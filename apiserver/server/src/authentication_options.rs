//! Flags of authentication, with upstream's names and rules of which exclude which.

use apiserver_auth::authn::structured::{
    AuthenticationConfiguration, ClaimMappings, ClaimValidationRule, Issuer, JwtAuthenticator,
    PrefixedClaimOrExpression,
};
use apiserver_auth::authn::token_webhook::TokenReviewVersion;
use apiserver_auth::jwt::SignatureAlgorithm;
use std::path::PathBuf;
use std::time::Duration;

const DEFAULT_USER_NAME_CLAIM: &str = "sub";
const EMAIL: &str = "email";
/// The prefix that means none.
const NO_PREFIX: &str = "-";

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct AuthenticationOptions {
    /// `--authentication-config`, which is read again as it changes.
    pub config_file: Option<PathBuf>,
    /// `--anonymous-auth`; anonymous requests are let through where it is not given.
    pub anonymous_auth: Option<bool>,
    pub oidc: OidcOptions,
    pub webhook: TokenWebhookOptions,
}

/// `--authentication-token-webhook-*`.
#[derive(Debug, Clone)]
pub struct TokenWebhookOptions {
    /// A kubeconfig.
    pub config_file: Option<PathBuf>,
    /// Of TokenReview: `v1` or `v1beta1`.
    pub version: String,
    /// Time for which answers are remembered.
    pub cache_ttl: Duration,
}

impl Default for TokenWebhookOptions {
    fn default() -> Self {
        Self {
            config_file: None,
            version: "v1beta1".to_owned(),
            cache_ttl: Duration::from_secs(120),
        }
    }
}

impl TokenWebhookOptions {
    pub(crate) fn version(&self) -> Option<TokenReviewVersion> {
        match self.version.as_str() {
            "v1" => Some(TokenReviewVersion::V1),
            "v1beta1" => Some(TokenReviewVersion::V1Beta1),
            _ => None,
        }
    }

    fn check(&self) -> Option<String> {
        let is_unknown = self.config_file.is_some() && self.version().is_none();
        is_unknown.then(|| {
            format!(
                "unsupported authentication webhook version {:?}, supported versions are \"v1\", \"v1beta1\"",
                self.version
            )
        })
    }
}

/// `--oidc-*`; what is not given is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OidcOptions {
    pub issuer_url: Option<String>,
    pub client_id: Option<String>,
    pub ca_file: Option<PathBuf>,
    pub username_claim: Option<String>,
    pub username_prefix: Option<String>,
    pub groups_claim: Option<String>,
    pub groups_prefix: Option<String>,
    pub signing_algs: Vec<String>,
    pub required_claims: Vec<(String, String)>,
}

impl AuthenticationOptions {
    pub(crate) fn check(&self) -> Vec<String> {
        let mut problems = self.oidc.check();
        problems.extend(self.webhook.check());
        let are_given = self.oidc != OidcOptions::default();
        if are_given && self.config_file.is_some() {
            problems.push("authentication-config file and oidc-* flags are mutually exclusive".to_owned());
        } else if are_given && !self.oidc.is_complete() {
            problems.push(
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"
                    .to_owned(),
            );
        }
        problems
    }

    /// Algorithms of tokens: by the flag, or all where a file names the issuers.
    pub(crate) fn algorithms(&self) -> Vec<SignatureAlgorithm> {
        if self.config_file.is_some() {
            return SignatureAlgorithm::ALL.to_vec();
        }
        let given = self.oidc.signing_algs.iter();
        let given: Vec<_> = given.filter_map(|name| SignatureAlgorithm::named(name)).collect();
        match given.is_empty() {
            true => vec![SignatureAlgorithm::Rs256],
            false => given,
        }
    }
}

impl OidcOptions {
    fn is_complete(&self) -> bool {
        let is_given = |own: &Option<String>| own.as_ref().is_some_and(|own| !own.is_empty());
        is_given(&self.issuer_url) && is_given(&self.client_id)
    }

    fn check(&self) -> Vec<String> {
        let names = self.signing_algs.iter();
        let problem = |name: &String| match SignatureAlgorithm::named(name) {
            None => Some(format!("oidc: unsupported signing alg: {name:?}")),
            // Keys of P-521 are left out, so no token could pass.
            Some(SignatureAlgorithm::Es512) => {
                Some("oidc: signing alg \"ES512\" is not supported yet".to_owned())
            }
            Some(_) => None,
        };
        names.filter_map(problem).collect()
    }

    /// The configuration that these flags stand for; `authorities` is the content of `--oidc-ca-file`.
    pub(crate) fn configuration(&self, authorities: String) -> AuthenticationConfiguration {
        if !self.is_complete() {
            return AuthenticationConfiguration::default();
        }
        let given = |own: &Option<String>| own.clone().unwrap_or_default();
        let issuer = given(&self.issuer_url);
        let claim = self.username_claim.clone();
        let claim = claim.unwrap_or_else(|| DEFAULT_USER_NAME_CLAIM.to_owned());
        let prefix = match given(&self.username_prefix).as_str() {
            "" if claim != EMAIL => format!("{issuer}#"),
            NO_PREFIX => String::new(),
            prefix => prefix.to_owned(),
        };
        let mapping = |claim: String, prefix: String| PrefixedClaimOrExpression {
            claim,
            prefix: Some(prefix),
            expression: String::new(),
        };
        let groups = given(&self.groups_claim);
        let groups = (!groups.is_empty()).then(|| mapping(groups, given(&self.groups_prefix)));
        let required = self.required_claims.iter();
        let required = required.map(|(claim, value)| ClaimValidationRule {
            claim: claim.clone(),
            required_value: value.clone(),
            ..ClaimValidationRule::default()
        });
        let jwt = JwtAuthenticator {
            issuer: Issuer {
                url: issuer,
                certificate_authority: authorities,
                audiences: vec![given(&self.client_id)],
                ..Issuer::default()
            },
            claim_validation_rules: required.collect(),
            claim_mappings: ClaimMappings {
                username: mapping(claim, prefix),
                groups: groups.unwrap_or_default(),
                ..ClaimMappings::default()
            },
            ..JwtAuthenticator::default()
        };
        AuthenticationConfiguration {
            jwt: vec![jwt],
            anonymous: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(own: &str) -> Option<String> {
        Some(own.to_owned())
    }

    #[test]
    fn oidc_flags_make_the_configuration_that_upstream_makes() {
        let mut flags = OidcOptions {
            issuer_url: text("https://issuer.example"),
            client_id: text("kubernetes"),
            groups_claim: text("groups"),
            groups_prefix: text("oidc:"),
            required_claims: vec![("hd".to_owned(), "example".to_owned())],
            ..OidcOptions::default()
        };
        let of = |flags: &OidcOptions| flags.configuration("ca".to_owned()).jwt.remove(0);
        let jwt = of(&flags);
        assert_eq!(jwt.issuer.audiences, ["kubernetes"]);
        assert_eq!(jwt.issuer.certificate_authority, "ca");
        assert_eq!(jwt.claim_mappings.username.claim, "sub");
        assert_eq!(
            jwt.claim_mappings.username.prefix,
            text("https://issuer.example#")
        );
        assert_eq!(jwt.claim_mappings.groups.prefix, text("oidc:"));
        assert_eq!(jwt.claim_validation_rules[0].required_value, "example");
        flags.username_claim = text("email");
        assert_eq!(of(&flags).claim_mappings.username.prefix, text(""));
        flags.username_prefix = text("-");
        flags.username_claim = text("name");
        assert_eq!(of(&flags).claim_mappings.username.prefix, text(""));
        flags.client_id = None;
        assert!(flags.configuration(String::new()).jwt.is_empty());
    }

    #[test]
    fn oidc_flags_exclude_the_file() {
        let check = |edit: fn(&mut AuthenticationOptions), expected: &str| {
            let mut options = AuthenticationOptions::default();
            edit(&mut options);
            assert_eq!(options.check().join("; "), expected);
        };
        check(|_| {}, "");
        check(|own| own.config_file = Some("f".into()), "");
        check(
            |own| own.oidc.issuer_url = text("https://issuer.example"),
            "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
        );
        check(
            |own| {
                own.config_file = Some("f".into());
                own.oidc.groups_claim = text("groups");
            },
            "authentication-config file and oidc-* flags are mutually exclusive",
        );
        check(
            |own| {
                own.oidc.issuer_url = text("https://issuer.example");
                own.oidc.client_id = text("id");
                own.oidc.signing_algs = vec!["RS256".to_owned(), "HS256".to_owned()];
            },
            "oidc: unsupported signing alg: \"HS256\"",
        );
        check(
            |own| {
                own.oidc.issuer_url = text("https://issuer.example");
                own.oidc.client_id = text("id");
                own.oidc.signing_algs = vec!["ES512".to_owned(), "ES384".to_owned()];
            },
            "oidc: signing alg \"ES512\" is not supported yet",
        );
    }
}
