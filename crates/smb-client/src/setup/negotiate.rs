//! NEGOTIATE (MS-SMB2 3.2.4.2.2, 3.2.5.2), and the check that it was not modified in transit (3.2.5.5).

use arena::sg_to_vec;
use env::Env;
use smb_auth::crypt::Cipher;
use smb_auth::derive::PreauthHash;
use smb_auth::sign::SigningAlgorithm;
use smb_wire::context::{
    Cipher as WireCipher, HashAlgorithm, NegotiateContext, NegotiateContextsBuf,
    SigningAlgorithm as WireSigning,
};
use smb_wire::ioctl::{ValidateNegotiateRequest, ValidateNegotiateResponse};
use smb_wire::msg::{
    Capabilities, Dialect, Dialects, FsctlCode, IoctlFlags, IoctlRequest, IoctlResponse, NegotiateRequest,
    NegotiateResponse, SecurityMode,
};
use smb_wire::{Command, FileId, Guid, HeaderFlags, NtStatus};

use crate::connection::{Connection, NegotiatedParameters, Request, Setup};
use crate::{ConnectError, ConnectOptions, RequestError};

/// The negotiated values of a connection.
#[derive(Clone)]
pub(crate) struct Negotiated {
    pub(crate) dialect: u16,
    pub(crate) cipher: Option<Cipher>,
    pub(crate) signing: SigningAlgorithm,
    /// Whether the server demands signatures.
    pub(crate) signing_required: bool,
    pub(crate) server_capabilities: Capabilities,
    pub(crate) server_security_mode: SecurityMode,
    pub(crate) server_guid: Guid,
    /// Maximum bytes of a READ; `max_write` and `max_transact` are the limits of the other requests.
    pub(crate) max_read: u32,
    pub(crate) max_write: u32,
    pub(crate) max_transact: u32,
    pub(crate) preauth: PreauthHash,
    /// The server's GSS token.
    pub(crate) hint: Vec<u8>,
}

/// All dialects, oldest first.
const DIALECTS: [u16; 5] = [0x0202, 0x0210, 0x0300, 0x0302, 0x0311];
const CIPHERS: [WireCipher; 4] =
    [WireCipher::AES_128_GCM, WireCipher::AES_128_CCM, WireCipher::AES_256_GCM, WireCipher::AES_256_CCM];
const SIGNING: [WireSigning; 3] = [WireSigning::AES_GMAC, WireSigning::AES_CMAC, WireSigning::HMAC_SHA256];
/// Maximum I/O size, whatever the server offers, in bytes: a frame can hold it with its header.
const IO_MAX: u32 = 8 << 20;
/// Maximum I/O size without large MTU, in bytes (MS-SMB2 3.2.4.1.5).
const SMALL_IO: u32 = 65_536;
/// Maximum size of a response without its payload, in bytes.
const OVERHEAD: usize = 65_536;

fn offered(options: &ConnectOptions) -> Vec<u8> {
    let wanted = DIALECTS.iter().filter(|d| (options.dialect_min..=options.dialect_max).contains(d));
    wanted.flat_map(|d| d.to_le_bytes()).collect()
}

fn capabilities(options: &ConnectOptions) -> Capabilities {
    // MS-SMB2 3.2.4.2.2.2: only a client that supports 3.x sends capabilities.
    if options.dialect_max < 0x0300 {
        return Capabilities::empty();
    }
    Capabilities::LARGE_MTU
        | Capabilities::MULTI_CHANNEL
        | Capabilities::ENCRYPTION
        | Capabilities::PERSISTENT_HANDLES
}

fn security_mode(options: &ConnectOptions) -> SecurityMode {
    let required =
        if options.require_signing { SecurityMode::SIGNING_REQUIRED } else { SecurityMode::empty() };
    SecurityMode::SIGNING_ENABLED | required
}

/// Negotiates on a new connection. `host` is the server's name as the caller wrote it.
///
/// # Errors
/// The server refused, or its response is invalid.
pub(crate) async fn negotiate(
    connection: &Connection,
    host: &str,
    guid: Guid,
    options: &ConnectOptions,
    env: &Env,
) -> Result<Negotiated, ConnectError> {
    let dialects = offered(options);
    let mut contexts = NegotiateContextsBuf::new();
    if options.dialect_max >= 0x0311 {
        contexts
            .preauth(&[HashAlgorithm::SHA_512], &env.random::<32>())
            .and_then(|c| c.encryption(&CIPHERS))
            .and_then(|c| c.signing(&SIGNING))
            .and_then(|c| c.net_name(host))
            .map_err(RequestError::Unencodable)?;
    }
    let body = NegotiateRequest {
        security_mode: security_mode(options),
        capabilities: capabilities(options),
        client_guid: guid,
        dialects: Dialects::from_bytes(&dialects).map_err(RequestError::Unencodable)?,
        contexts: contexts.as_contexts(),
    };
    let mut request = Request::new(Command::NEGOTIATE, &body)?;
    request.setup = Some(Setup { session_id: 0, key: None, sequence: 0 });
    let response = connection.call(request).await?;
    if response.header.status != NtStatus::SUCCESS {
        return Err(ConnectError::Negotiate(response.header.status));
    }
    let answer: NegotiateResponse<'_> = response.body()?;
    let mut negotiated = read(&answer, &body, options)?;
    if negotiated.dialect == 0x0311 {
        // MS-SMB2 3.2.5.2: the hash covers both messages.
        negotiated.preauth.update(&[response.request.as_deref().unwrap_or_default()]);
        negotiated.preauth.update(&[&sg_to_vec(&response.message)]);
    }
    connection.set_parameters(NegotiatedParameters {
        multi_credit: negotiated.dialect >= 0x0210
            && negotiated.server_capabilities.contains(Capabilities::LARGE_MTU),
        message_limit: negotiated.max_read.max(negotiated.max_transact) as usize + OVERHEAD,
    });
    Ok(negotiated)
}

/// MS-SMB2 3.2.5.2.
fn read(
    answer: &NegotiateResponse<'_>,
    asked: &NegotiateRequest<'_>,
    options: &ConnectOptions,
) -> Result<Negotiated, ConnectError> {
    let dialect = answer.dialect.0;
    if !asked.dialects.contains(answer.dialect) {
        return Err(ConnectError::Tampered("the response has a dialect that was not offered"));
    }
    if !answer.security_mode.contains(SecurityMode::SIGNING_ENABLED) && options.require_signing {
        return Err(ConnectError::Refused("the server does not support signing, which this client requires"));
    }
    let mut cipher = None;
    let mut signing = SigningAlgorithm::default_for_dialect(dialect);
    match dialect {
        0x0311 => (cipher, signing) = contexts(answer, signing)?,
        0x0300 | 0x0302 if answer.capabilities.contains(Capabilities::ENCRYPTION) => {
            cipher = Some(Cipher::Aes128Ccm);
        }
        _ => {}
    }
    if options.encrypt && cipher.is_none() {
        return Err(ConnectError::Refused("encryption was requested, but the server does not support it"));
    }
    let large = dialect >= 0x0210 && answer.capabilities.contains(Capabilities::LARGE_MTU);
    let most = if large { IO_MAX } else { SMALL_IO };
    // MS-SMB2 3.2.5.2: sizes below 4 KiB are invalid.
    if answer.max_read_size.min(answer.max_write_size).min(answer.max_transact_size) < 4096 {
        return Err(ConnectError::Refused("the server accepts only transfers of less than 4 KiB"));
    }
    Ok(Negotiated {
        dialect,
        cipher,
        signing,
        signing_required: answer.security_mode.contains(SecurityMode::SIGNING_REQUIRED),
        server_capabilities: answer.capabilities,
        server_security_mode: answer.security_mode,
        server_guid: answer.server_guid,
        max_read: answer.max_read_size.min(most),
        max_write: answer.max_write_size.min(most),
        max_transact: answer.max_transact_size.min(most),
        preauth: PreauthHash::new(),
        hint: answer.security_buffer.to_vec(),
    })
}

/// Reads the contexts of a 3.1.1 response: one hash, at most one cipher and one signing algorithm, each of them
/// offered.
fn contexts(
    answer: &NegotiateResponse<'_>,
    mut signing: SigningAlgorithm,
) -> Result<(Option<Cipher>, SigningAlgorithm), ConnectError> {
    let mut preauth = false;
    let mut cipher = None;
    for context in answer.contexts.iter() {
        match context.map_err(RequestError::Malformed)? {
            NegotiateContext::Preauth { hashes, .. } => {
                preauth = hashes.len() == 1 && hashes.contains(HashAlgorithm::SHA_512);
            }
            NegotiateContext::Encryption(chosen) => {
                let id = chosen.iter().next().filter(|_| chosen.len() == 1);
                cipher = match id {
                    Some(WireCipher::NONE) => None,
                    Some(id) if CIPHERS.contains(&id) => Cipher::from_wire(id.0),
                    _ => {
                        return Err(ConnectError::Tampered("the response has a cipher that was not offered"));
                    }
                };
            }
            NegotiateContext::Signing(chosen) => {
                let id = chosen.iter().next().filter(|_| chosen.len() == 1);
                signing = id.and_then(|id| SigningAlgorithm::from_wire(id.0)).ok_or(
                    ConnectError::Tampered("the response has a signing algorithm that was not offered"),
                )?;
            }
            _ => {}
        }
    }
    if !preauth {
        return Err(ConnectError::Tampered("the response has no hash algorithm to protect the log-on"));
    }
    Ok((cipher, signing))
}

/// FSCTL_VALIDATE_NEGOTIATE_INFO: compares the negotiation as both ends saw it. 3.1.1 does not need this check: its
/// keys depend on the messages (MS-SMB2 3.2.5.5).
///
/// # Errors
/// [`ConnectError::Tampered`].
/// [`ConnectError::Tampered`].
pub(crate) async fn validate(
    connection: &Connection,
    tree_id: u32,
    guid: Guid,
    options: &ConnectOptions,
    negotiated: &Negotiated,
) -> Result<(), ConnectError> {
    // Also checks if 2.x was negotiated: a 3.x server answers, which reveals a downgrade.
    if negotiated.dialect >= 0x0311 || options.dialect_max < 0x0300 {
        return Ok(());
    }
    let dialects = offered(options);
    let mut input = Vec::new();
    ValidateNegotiateRequest {
        capabilities: capabilities(options),
        guid,
        security_mode: security_mode(options),
        dialects: Dialects::from_bytes(&dialects).map_err(RequestError::Unencodable)?,
    }
    .encode(&mut input)
    .map_err(RequestError::Unencodable)?;
    let body = IoctlRequest {
        ctl_code: FsctlCode::VALIDATE_NEGOTIATE_INFO,
        file_id: FileId::NONE,
        input: &input,
        max_output_response: ValidateNegotiateResponse::LEN as u32,
        flags: IoctlFlags::IS_FSCTL,
        ..IoctlRequest::default()
    };
    let mut request = Request::new(Command::IOCTL, &body)?;
    request.tree_id = tree_id;
    // MS-SMB2 3.2.5.5: this request is always signed.
    request.sign = true;
    let response = connection.call(request).await.map_err(|e| match e {
        // A server that received other values ends the connection (3.3.5.15.12).
        RequestError::Lost(_) => {
            ConnectError::Tampered("the server ended the connection when asked to confirm the negotiation")
        }
        e => ConnectError::Request(e),
    })?;
    let flags = response.header.flags;
    if !flags.contains(HeaderFlags::SIGNED) && !response.encrypted {
        return Err(ConnectError::Tampered("the server's confirmation is not signed"));
    }
    match response.header.status {
        NtStatus::SUCCESS => {}
        // Servers without this FSCTL return these statuses. The response is signed, so it is authentic.
        NtStatus::NOT_SUPPORTED | NtStatus::FILE_CLOSED | NtStatus::INVALID_DEVICE_REQUEST => return Ok(()),
        status => return Err(RequestError::Status(status).into()),
    }
    let answer: IoctlResponse<'_> = response.body()?;
    let confirmed = ValidateNegotiateResponse::decode(answer.output).map_err(RequestError::Malformed)?;
    let same = confirmed.capabilities == negotiated.server_capabilities
        && confirmed.guid == negotiated.server_guid
        && confirmed.security_mode == negotiated.server_security_mode
        && confirmed.dialect == Dialect(negotiated.dialect);
    if same { Ok(()) } else { Err(ConnectError::Tampered("the server's response was changed in transit")) }
}
