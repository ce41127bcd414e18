//! The flags of client certificates and front proxies, as upstream's.

use apiserver_server::RequestHeaderConfig;
use clap::Args;
use std::path::PathBuf;

/// See the module.
#[derive(Debug, Args)]
pub(crate) struct AuthenticationArguments {
    /// Bundle of authorities whose client certificates are accepted besides those of the cluster; read again as it changes
    #[arg(long)]
    pub(crate) client_ca_file: Option<PathBuf>,
    /// Bundle of authorities of front proxies, which name users in headers; read again as it changes
    #[arg(long)]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of front proxies; by default any name in a certificate of their authorities
    #[arg(long, value_delimiter = ',')]
    requestheader_allowed_names: Vec<String>,
    /// Headers to look for a user's name in; X-Remote-User is common
    #[arg(long, value_delimiter = ',')]
    requestheader_username_headers: Vec<String>,
    /// Headers to look for a user's uid in; X-Remote-Uid is suggested
    #[arg(long, value_delimiter = ',')]
    requestheader_uid_headers: Vec<String>,
    /// Headers to look for a user's groups in; X-Remote-Group is suggested
    #[arg(long, value_delimiter = ',')]
    requestheader_group_headers: Vec<String>,
    /// Prefixes of headers with what else is known of a user; X-Remote-Extra- is suggested
    #[arg(long, value_delimiter = ',')]
    requestheader_extra_headers_prefix: Vec<String>,
}

impl AuthenticationArguments {
    pub(crate) fn request_header(&self) -> RequestHeaderConfig {
        RequestHeaderConfig {
            client_ca_file: self.requestheader_client_ca_file.clone(),
            allowed_names: self.requestheader_allowed_names.clone(),
            username_headers: self.requestheader_username_headers.clone(),
            uid_headers: self.requestheader_uid_headers.clone(),
            group_headers: self.requestheader_group_headers.clone(),
            extra_headers_prefix: self.requestheader_extra_headers_prefix.clone(),
        }
    }
}
