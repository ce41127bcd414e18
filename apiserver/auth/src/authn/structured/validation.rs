//! Rules of `AuthenticationConfiguration`, in upstream's order and words.

use super::{
    AnonymousAuthConfig, AuthenticationConfiguration, ClaimMappings, ClaimRule, ClaimValidationRule,
    ConfigurationProblems, Expression, ExtraMapping, ExtraRule, Issuer, JwtAuthenticator, JwtRules, Mapping,
    PrefixedClaimOrExpression, UserRule, UserValidationRule, url,
};
use crate::syntax::domain_prefixed_path;
use machinery_cel::{Compiled, ExpressionProblem};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, FieldPath};
use machinery_x509::{AuthoritiesError, certificate_bundle};
use std::collections::{BTreeSet, HashSet};

const MAX_ISSUERS: usize = 64;
const MATCH_ANY: &str = "MatchAny";
const NO_CERTIFICATES: &str = "data does not contain any valid RSA or ECDSA certificates";
const BOTH: &str = "claim and expression can't both be set";

pub(super) fn compile(
    own: &AuthenticationConfiguration,
    disallowed: &[String],
) -> Result<Vec<JwtRules>, ConfigurationProblems> {
    let root = FieldPath::new("jwt");
    if own.jwt.len() > MAX_ISSUERS {
        let problem = FieldError::too_many(&root, own.jwt.len(), MAX_ISSUERS);
        return Err(ConfigurationProblems(vec![problem]));
    }
    let disallowed: BTreeSet<&str> = disallowed.iter().map(String::as_str).collect();
    let (mut urls, mut discovery, mut rules) = (HashSet::new(), HashSet::new(), Vec::new());
    let mut problems = Vec::new();
    for (at, jwt) in own.jwt.iter().enumerate() {
        let path = root.index(at);
        let issuer = path.child("issuer");
        let mut checking = Checking::default();
        rules.extend(checking.jwt(jwt, &path, &disallowed));
        problems.append(&mut checking.problems);
        if !urls.insert(&jwt.issuer.url) {
            problems.push(FieldError::duplicate(&issuer.child("url"), &jwt.issuer.url));
        }
        let url = &jwt.issuer.discovery_url;
        if !url.is_empty() && !discovery.insert(url) {
            problems.push(FieldError::duplicate(&issuer.child("discoveryURL"), url));
        }
    }
    problems.extend(own.anonymous.as_ref().and_then(anonymous));
    match problems.is_empty() {
        true => Ok(rules),
        false => Err(ConfigurationProblems(problems)),
    }
}

fn anonymous(own: &AnonymousAuthConfig) -> Option<FieldError> {
    if own.enabled || own.conditions.is_empty() {
        return None;
    }
    let path = FieldPath::new("anonymous").child("conditions");
    let shown = Shown(serde_json::to_string(&own.conditions).unwrap_or_default());
    let detail = "enabled should be set to true when conditions are defined";
    Some(FieldError::invalid(&path, shown, detail))
}

/// Problems that were found, and the use of claims that depend on each other.
#[derive(Default)]
struct Checking {
    problems: Vec<FieldError>,
    uses_email: bool,
    uses_email_verified: bool,
}

/// User name, groups, uid and extras.
type Mappings = (Mapping, Option<Mapping>, Option<Mapping>, Vec<ExtraRule>);

impl Checking {
    fn invalid(&mut self, path: &FieldPath, value: &str, detail: impl Into<String>) {
        self.problems.push(FieldError::invalid(path, value, detail));
    }

    fn required(&mut self, path: &FieldPath, detail: impl Into<String>) {
        self.problems.push(FieldError::required(path, detail));
    }

    fn duplicate(&mut self, path: &FieldPath, value: &str) {
        self.problems.push(FieldError::duplicate(path, value));
    }

    /// None where something of it is wrong.
    fn jwt(
        &mut self,
        own: &JwtAuthenticator,
        path: &FieldPath,
        disallowed: &BTreeSet<&str>,
    ) -> Option<JwtRules> {
        self.issuer(&own.issuer, &path.child("issuer"), disallowed);
        let claims = self.claim_rules(&own.claim_validation_rules, &path.child("claimValidationRules"));
        let mappings = self.mappings(&own.claim_mappings, &path.child("claimMappings"));
        let users = self.user_rules(&own.user_validation_rules, &path.child("userValidationRules"));
        let (username, groups, uid, extra) = mappings.filter(|_| self.problems.is_empty())?;
        let required = own.claim_validation_rules.iter();
        let required = required.filter(|rule| !rule.claim.is_empty());
        Some(JwtRules {
            issuer: own.issuer.clone(),
            username,
            groups,
            uid,
            extra,
            required: required
                .map(|rule| (rule.claim.clone(), rule.required_value.clone()))
                .collect(),
            claims,
            users,
        })
    }

    fn issuer(&mut self, own: &Issuer, path: &FieldPath, disallowed: &BTreeSet<&str>) {
        match own.url.as_str() {
            "" => self.required(&path.child("url"), ""),
            url => self.url(url, disallowed, &path.child("url")),
        }
        if !own.discovery_url.is_empty() {
            let path = path.child("discoveryURL");
            let bare = |url: &str| url.trim_end_matches('/').to_owned();
            if !own.url.is_empty() && bare(&own.url) == bare(&own.discovery_url) {
                self.invalid(
                    &path,
                    &own.discovery_url,
                    "discoveryURL must be different from URL",
                );
            }
            self.url(&own.discovery_url, &BTreeSet::new(), &path);
        }
        self.audiences(own, path);
        if !own.certificate_authority.is_empty()
            && let Err(error) = certificate_bundle(&own.certificate_authority)
        {
            let why = match error {
                AuthoritiesError::NoCertificates => NO_CERTIFICATES.to_owned(),
                other => other.to_string(),
            };
            self.invalid(&path.child("certificateAuthority"), "<omitted>", why);
        }
        self.egress_selector(&own.egress_selector_type, &path.child("egressSelectorType"));
    }

    /// This server has one way out: as upstream's without the gate.
    fn egress_selector(&mut self, own: &str, path: &FieldPath) {
        if own.is_empty() {
            return;
        }
        let detail = "egress selector is not supported when StructuredAuthenticationConfigurationEgressSelector feature gate is disabled";
        self.invalid(path, own, detail);
        if !matches!(own, "controlplane" | "cluster") {
            self.invalid(
                path,
                own,
                "egress selector must be either controlplane or cluster",
            );
        }
    }

    fn url(&mut self, text: &str, disallowed: &BTreeSet<&str>, path: &FieldPath) {
        if disallowed.contains(text) {
            let all: Vec<&str> = disallowed.iter().copied().collect();
            let detail = format!(
                "URL must not overlap with disallowed issuers: [{}]",
                all.join(" ")
            );
            self.invalid(path, text, detail);
        }
        let parts = match url::parse(text) {
            Ok(parts) => parts,
            Err(why) => return self.invalid(path, text, why),
        };
        for (is_wrong, detail) in [
            (parts.scheme != "https", "URL scheme must be https"),
            (parts.has_user, "URL must not contain a username or password"),
            (!parts.query.is_empty(), "URL must not contain a query"),
            (!parts.fragment.is_empty(), "URL must not contain a fragment"),
        ] {
            if is_wrong {
                self.invalid(path, text, detail);
            }
        }
    }

    fn audiences(&mut self, own: &Issuer, issuer: &FieldPath) {
        let path = issuer.child("audiences");
        let policy = own.audience_match_policy.as_str();
        if own.audiences.is_empty() {
            return self.required(&path, format!("at least one {path} is required"));
        }
        let mut seen = HashSet::new();
        for (at, audience) in own.audiences.iter().enumerate() {
            if audience.is_empty() {
                self.required(&path.index(at), "");
            }
            if !seen.insert(audience) {
                self.duplicate(&path.index(at), audience);
            }
        }
        let path = issuer.child("audienceMatchPolicy");
        let several = own.audiences.len() > 1;
        if several && policy != MATCH_ANY {
            let detail = "audienceMatchPolicy must be MatchAny for multiple audiences";
            self.invalid(&path, policy, detail);
        }
        if !several && !policy.is_empty() && policy != MATCH_ANY {
            let detail = "audienceMatchPolicy must be empty or MatchAny for single audience";
            self.invalid(&path, policy, detail);
        }
    }

    /// An expression that could be compiled.
    fn compiled<T>(
        &mut self,
        compiled: Result<T, ExpressionProblem>,
        text: &str,
        path: &FieldPath,
    ) -> Option<T> {
        match compiled {
            Ok(compiled) => return Some(compiled),
            Err(ExpressionProblem::Invalid(why)) => self.invalid(path, text, why),
            Err(ExpressionProblem::Internal(why)) => self.problems.push(FieldError::internal(path, why)),
        }
        None
    }

    fn note(&mut self, compiled: &Compiled) {
        self.uses_email_verified |= compiled.selects("claims", "email_verified");
    }

    fn claim_rules(&mut self, rules: &[ClaimValidationRule], path: &FieldPath) -> Vec<ClaimRule> {
        let (mut claims, mut expressions, mut out) = (HashSet::new(), HashSet::new(), Vec::new());
        for (at, rule) in rules.iter().enumerate() {
            let path = path.index(at);
            match (rule.claim.as_str(), rule.expression.as_str()) {
                ("", "") => self.required(&path, "claim or expression is required"),
                (claim, "") => {
                    if !rule.message.is_empty() {
                        let detail = "may not be specified when claim is set";
                        self.invalid(&path.child("message"), &rule.message, detail);
                    }
                    if !claims.insert(claim) {
                        self.duplicate(&path.child("claim"), claim);
                    }
                }
                ("", text) => {
                    if !rule.required_value.is_empty() {
                        let detail = "may not be specified when expression is set";
                        self.invalid(&path.child("requiredValue"), &rule.required_value, detail);
                    }
                    let at = path.child("expression");
                    if !expressions.insert(text) {
                        self.duplicate(&at, text);
                        continue;
                    }
                    let Some((condition, compiled)) = self.compiled(Expression::on_claims(text), text, &at)
                    else {
                        continue;
                    };
                    self.note(&compiled);
                    out.push(ClaimRule {
                        condition,
                        message: rule.message.clone(),
                    });
                }
                (claim, _) => self.invalid(&path, claim, BOTH),
            }
        }
        out
    }

    /// User name, groups, uid and extras; none where the user name cannot be made.
    fn mappings(&mut self, own: &ClaimMappings, path: &FieldPath) -> Option<Mappings> {
        let username = self.prefixed(&own.username, &path.child("username"));
        if own.username.claim.is_empty() && own.username.expression.is_empty() {
            self.required(&path.child("username"), "claim or expression is required");
        }
        let username = username.map(|(mapping, compiled)| {
            if let Some(compiled) = compiled {
                self.uses_email |= compiled.selects("claims", "email");
                self.note(&compiled);
            }
            mapping
        });
        let groups = self.prefixed(&own.groups, &path.child("groups"));
        let uid = self.uid(own, &path.child("uid"));
        let extra = self.extra(&own.extra, &path.child("extra"));
        if self.uses_email && !self.uses_email_verified {
            self.invalid(
                &path.child("username").child("expression"),
                &own.username.expression,
                "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression",
            );
        }
        Some((username?, groups.map(|(mapping, _)| mapping), uid, extra))
    }

    fn prefixed(
        &mut self,
        own: &PrefixedClaimOrExpression,
        path: &FieldPath,
    ) -> Option<(Mapping, Option<Compiled>)> {
        match (own.claim.as_str(), own.expression.as_str()) {
            ("", "") => None,
            (claim, "") => {
                let Some(prefix) = own.prefix.clone() else {
                    let detail = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                    self.required(&path.child("prefix"), detail);
                    return None;
                };
                let name = claim.to_owned();
                Some((Mapping::Claim { name, prefix }, None))
            }
            ("", text) => {
                if let Some(prefix) = &own.prefix {
                    let detail = "may not be specified when expression is set";
                    self.invalid(&path.child("prefix"), prefix, detail);
                }
                let path = path.child("expression");
                let (expression, compiled) = self.compiled(Expression::of_claims(text), text, &path)?;
                let is_good = own.prefix.is_none();
                is_good.then(|| (Mapping::Expression(expression), Some(compiled)))
            }
            _ => {
                self.invalid(path, "", BOTH);
                None
            }
        }
    }

    fn uid(&mut self, own: &ClaimMappings, path: &FieldPath) -> Option<Mapping> {
        match (own.uid.claim.as_str(), own.uid.expression.as_str()) {
            ("", "") => None,
            (claim, "") => Some(Mapping::Claim {
                name: claim.to_owned(),
                prefix: String::new(),
            }),
            ("", text) => {
                let compiled = Expression::of_claims(text);
                let (own, _) = self.compiled(compiled, text, &path.child("expression"))?;
                Some(Mapping::Expression(own))
            }
            _ => {
                self.invalid(path, "", BOTH);
                None
            }
        }
    }

    fn extra(&mut self, all: &[ExtraMapping], path: &FieldPath) -> Vec<ExtraRule> {
        let (mut seen, mut out) = (HashSet::new(), Vec::new());
        for (at, own) in all.iter().enumerate() {
            let (path, key) = (path.index(at), own.key.as_str());
            self.extra_key(key, &path.child("key"));
            if !seen.insert(key) {
                self.duplicate(&path.child("key"), key);
                continue;
            }
            let (text, path) = (own.value_expression.as_str(), path.child("valueExpression"));
            if text.is_empty() {
                self.required(&path, "");
                continue;
            }
            if let Some((values, compiled)) = self.compiled(Expression::of_claims(text), text, &path) {
                self.note(&compiled);
                let key = key.to_owned();
                out.push(ExtraRule { key, values });
            }
        }
        out
    }

    fn extra_key(&mut self, key: &str, path: &FieldPath) {
        match key {
            "" => self.required(path, ""),
            key => self.problems.extend(domain_prefixed_path(path, key)),
        }
        if key != key.to_lowercase() {
            self.invalid(path, key, "must be lowercase");
        }
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let reserved = ["kubernetes.io", "k8s.io"].iter().any(|own| {
            let rest = domain.strip_suffix(own);
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        });
        if reserved {
            let detail = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
            self.invalid(path, key, detail);
        }
    }

    fn user_rules(&mut self, rules: &[UserValidationRule], path: &FieldPath) -> Vec<UserRule> {
        let (mut seen, mut out) = (HashSet::new(), Vec::new());
        for (at, rule) in rules.iter().enumerate() {
            let path = path.index(at).child("expression");
            let text = rule.expression.as_str();
            if text.is_empty() {
                self.required(&path, "");
                continue;
            }
            if !seen.insert(text) {
                self.duplicate(&path, text);
                continue;
            }
            if let Some(condition) = self.compiled(Expression::on_user(text), text, &path) {
                let message = rule.message.clone();
                out.push(UserRule { condition, message });
            }
        }
        out
    }
}
