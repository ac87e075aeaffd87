//! NEGOTIATE (MS-SMB2 3.3.5.4) and the multi-protocol negotiate (3.3.5.3).

use std::sync::Arc;

use smb_auth::acceptor::AcceptorConfig;
use smb_auth::crypt::Cipher;
use smb_auth::sign::SigningAlgorithm;
use smb_wire::context::{
    Cipher as WireCipher, HashAlgorithm, NegotiateContext, NegotiateContextsBuf,
    SigningAlgorithm as WireSigning, create,
};
use smb_wire::msg::{Capabilities, Dialect, NegotiateRequest, NegotiateResponse, SecurityMode};
use smb_wire::{Command, Decode, FileTime, Guid, Header, NtStatus};

use super::chain::{FinishedRequest, Signing};
use super::{ConnectionError, Engine, HashInto, Outcome};
use crate::Protection;
use crate::request::{ConnectionFacts, Reply};
use crate::server::Progress;

/// The negotiated values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Negotiated {
    pub(super) dialect: u16,
    pub(super) cipher: Option<Cipher>,
    pub(super) signing: SigningAlgorithm,
}

/// The supported dialects, newest first.
const DIALECTS: [u16; 5] = [0x0311, 0x0302, 0x0300, 0x0210, 0x0202];
/// Before large MTU, no transfer is larger than this, in bytes (MS-SMB2 3.3.5.4).
const SMALL_IO: u32 = 65_536;
/// The page of a client's cache, in bytes: the client's largest READ is a multiple of it.
const PAGE: u32 = 4096;
/// Salt of the pre-authentication context, in bytes.
const SALT: usize = 32;

/// The offers in a 3.1.1 client's contexts that the server uses.
#[derive(Default)]
struct Offer {
    preauth: Option<bool>,
    ciphers: Option<Option<Cipher>>,
    signing: Option<Option<SigningAlgorithm>>,
    /// POSIX extensions of the version that is known here.
    posix: bool,
}

impl Engine {
    /// MS-SMB2 3.3.5.3: an SMB1 negotiate that offers SMB2 gets an SMB2 answer; any other SMB1 message ends the
    /// connection.
    pub(super) fn smb1(&mut self, message: &[u8]) -> Result<(), ConnectionError> {
        if self.negotiated.is_some() || self.multi_protocol {
            return Err(ConnectionError::Protocol("an SMB1 message on an SMB2 connection"));
        }
        let offer = smb_wire::smb1::decode_negotiate(message)?;
        let dialect = if offer.smb_2_wildcard && self.server.config.dialect_max >= 0x0210 {
            self.multi_protocol = true;
            Dialect::WILDCARD
        } else if offer.smb_2_002 && self.speaks(0x0202) {
            Dialect::SMB_2_0_2
        } else {
            return Err(ConnectionError::Protocol(
                "the client supports SMB1 only: enable SMB2 or later on the client",
            ));
        };
        // The reply's header is that of the first SMB2 request (MS-SMB2 3.3.5.3.1); its id is used up by it.
        let header = Header { command: Command::NEGOTIATE, credits: 1, ..Header::default() };
        let _ = self.credits.take(0, 1);
        if dialect == Dialect::SMB_2_0_2 {
            self.agree(0x0202, None, SigningAlgorithm::HmacSha256, Guid::default(), 0, 0);
        }
        let hint = AcceptorConfig::new(&self.server.config.name).hint();
        let response = NegotiateResponse {
            dialect,
            max_transact_size: SMALL_IO,
            max_read_size: SMALL_IO,
            max_write_size: SMALL_IO,
            security_buffer: &hint,
            ..self.response()
        };
        let reply = Reply::ok(&response);
        let finished =
            FinishedRequest { header, reply, signing: Signing::Nothing, invalidate: None, async_id: None };
        self.send_finished(&mut [finished], None);
        Ok(())
    }

    pub(super) fn negotiate(&mut self, message: &[u8]) -> Outcome {
        // MS-SMB2 3.3.5.4: a second NEGOTIATE ends the connection.
        if self.negotiated.is_some() {
            self.ending = Some(ConnectionError::Protocol("the client sent a second NEGOTIATE"));
            return Outcome::Silent;
        }
        let Ok(request) = NegotiateRequest::decode(message) else {
            return NtStatus::INVALID_PARAMETER.into();
        };
        if request.dialects.is_empty() {
            return NtStatus::INVALID_PARAMETER.into();
        }
        let common = DIALECTS.into_iter().find(|d| self.speaks(*d) && request.dialects.contains(Dialect(*d)));
        let Some(dialect) = common else { return NtStatus::NOT_SUPPORTED.into() };
        let mut offer = Offer::default();
        if dialect == 0x0311 {
            match self.read_contexts(&request) {
                Ok(o) => offer = o,
                Err(status) => return status.into(),
            }
        }
        let encryption = self.server.config.encryption != Protection::Off;
        let cipher = match dialect {
            0x0311 => offer.ciphers.flatten().filter(|_| encryption),
            // MS-SMB2 3.3.5.4: 3.0 and 3.0.2 know AES-128-CCM only, announced by a capability.
            0x0300 | 0x0302 if encryption && request.capabilities.contains(Capabilities::ENCRYPTION) => {
                Some(Cipher::Aes128Ccm)
            }
            _ => None,
        };
        let signing = match (dialect, offer.signing) {
            (0x0311, Some(Some(chosen))) => chosen,
            _ => SigningAlgorithm::default_for_dialect(dialect),
        };
        self.agree(
            dialect,
            cipher,
            signing,
            request.client_guid,
            request.capabilities.bits(),
            request.security_mode.bits(),
        );
        if offer.posix {
            self.facts = Arc::new(ConnectionFacts { posix: true, ..(*self.facts).clone() });
        }
        self.answer(message, &offer)
    }

    /// Builds the response; in 3.1.1 both messages go into the pre-authentication hash (3.3.5.4).
    fn answer(&mut self, message: &[u8], offer: &Offer) -> Outcome {
        let hint = AcceptorConfig::new(&self.server.config.name).hint();
        let contexts = match self.facts.dialect {
            0x0311 => self.contexts(offer),
            _ => NegotiateContextsBuf::new(),
        };
        let response =
            NegotiateResponse { security_buffer: &hint, contexts: contexts.as_contexts(), ..self.response() };
        let mut reply = Reply::ok(&response);
        if self.facts.dialect == 0x0311 {
            self.preauth.update(&[message]);
            reply = reply.with(|extra| extra.hash_into = Some(HashInto::Connection));
        }
        Outcome::Reply(reply)
    }

    fn speaks(&self, dialect: u16) -> bool {
        (self.server.config.dialect_min..=self.server.config.dialect_max).contains(&dialect)
    }

    #[allow(clippy::too_many_arguments)]
    fn agree(
        &mut self,
        dialect: u16,
        cipher: Option<Cipher>,
        signing: SigningAlgorithm,
        client_guid: Guid,
        client_capabilities: u32,
        client_security_mode: u16,
    ) {
        self.negotiated = Some(Negotiated { dialect, cipher, signing });
        self.reached(Progress::Negotiated);
        let multi_credit = dialect >= 0x0210;
        let mut capabilities = Capabilities::empty();
        if multi_credit {
            capabilities |= Capabilities::LARGE_MTU | Capabilities::LEASING;
        }
        // MS-SMB2 3.3.5.4: only where the client offers it as well.
        if dialect >= 0x0300 {
            let offered = Capabilities::from_bits_retain(client_capabilities);
            capabilities |= offered & (Capabilities::MULTI_CHANNEL | Capabilities::DIRECTORY_LEASING);
            if self.server.config.journal.is_some() {
                capabilities |= offered & Capabilities::PERSISTENT_HANDLES;
            }
        }
        // MS-SMB2 2.2.4: in 3.1.1 encryption is a context, the flag belongs to 3.0 and 3.0.2.
        if matches!(dialect, 0x0300 | 0x0302) && cipher.is_some() {
            capabilities |= Capabilities::ENCRYPTION;
        }
        let mut mode = SecurityMode::SIGNING_ENABLED;
        if self.server.config.signing == Protection::Required {
            mode |= SecurityMode::SIGNING_REQUIRED;
        }
        let max_io = if multi_credit { self.facts.max_io } else { self.facts.max_io.min(SMALL_IO) };
        let signs = (client_security_mode | mode.bits()) & SecurityMode::SIGNING_REQUIRED.bits() != 0;
        // Over SMB Direct with encryption, Linux sends READs of MaxReadSize without RDMA, even if it cannot receive so
        // long a response, unless signing is required: so the limit is set here.
        let max_read = match cipher {
            Some(_) if !signs => max_io.min(self.facts.max_inline_read(true) & !(PAGE - 1)),
            _ => max_io,
        };
        self.facts = Arc::new(ConnectionFacts {
            dialect,
            client_guid,
            client_capabilities,
            client_security_mode,
            server_capabilities: capabilities.bits(),
            server_security_mode: mode.bits(),
            max_io,
            max_read,
            multi_credit,
            ..(*self.facts).clone()
        });
        if dialect >= 0x0210 {
            self.server.clients.add(client_guid, &self.inbox);
        }
    }

    /// The fixed part of a response.
    fn response(&self) -> NegotiateResponse<'static> {
        let now = self.server.env.unix_time();
        let mut mode = SecurityMode::SIGNING_ENABLED;
        if self.server.config.signing == Protection::Required {
            mode |= SecurityMode::SIGNING_REQUIRED;
        }
        NegotiateResponse {
            security_mode: mode,
            dialect: Dialect(self.facts.dialect),
            server_guid: self.server.config.guid,
            capabilities: Capabilities::from_bits_retain(self.facts.server_capabilities),
            max_transact_size: self.facts.max_transact(),
            max_read_size: self.facts.max_read,
            max_write_size: self.facts.max_io,
            system_time: FileTime::from_unix(now.as_secs() as i64, now.subsec_nanos()),
            // MS-SMB2 3.3.5.4 wants zero here.
            server_start_time: FileTime::default(),
            ..NegotiateResponse::default()
        }
    }

    /// MS-SMB2 3.3.5.4: exactly one pre-authentication context with SHA-512; at most one of the others.
    fn read_contexts(&self, request: &NegotiateRequest<'_>) -> Result<Offer, NtStatus> {
        let mut offer = Offer::default();
        for context in request.contexts.iter() {
            match context.map_err(|_| NtStatus::INVALID_PARAMETER)? {
                NegotiateContext::Preauth { hashes, .. } => {
                    let known = hashes.contains(HashAlgorithm::SHA_512);
                    if hashes.is_empty() || offer.preauth.replace(known).is_some() {
                        return Err(NtStatus::INVALID_PARAMETER);
                    }
                }
                NegotiateContext::Encryption(ids) => {
                    let ours = [Cipher::Aes128Gcm, Cipher::Aes128Ccm, Cipher::Aes256Gcm, Cipher::Aes256Ccm];
                    // The client's order of preference decides among the supported ones.
                    let chosen = ids.iter().find_map(|id| ours.into_iter().find(|c| c.to_wire() == id.0));
                    if ids.is_empty() || offer.ciphers.replace(chosen).is_some() {
                        return Err(NtStatus::INVALID_PARAMETER);
                    }
                }
                NegotiateContext::Signing(ids) => {
                    let chosen = ids.iter().find_map(|id| SigningAlgorithm::from_wire(id.0));
                    if ids.is_empty() || offer.signing.replace(chosen).is_some() {
                        return Err(NtStatus::INVALID_PARAMETER);
                    }
                }
                NegotiateContext::Posix(versions) => {
                    offer.posix = versions.chunks_exact(16).any(|v| v == create::name::POSIX);
                }
                // Compression and RDMA transforms are not offered; the rest is to be ignored.
                _ => {}
            }
        }
        match offer.preauth {
            Some(true) => Ok(offer),
            Some(false) => Err(NtStatus::SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP),
            None => Err(NtStatus::INVALID_PARAMETER),
        }
    }

    fn contexts(&self, offer: &Offer) -> NegotiateContextsBuf {
        const FITS: &str = "a few short contexts fit";
        let mut out = NegotiateContextsBuf::new();
        let salt: [u8; SALT] = self.server.env.random();
        out.preauth(&[HashAlgorithm::SHA_512], &salt).expect(FITS);
        if offer.ciphers.is_some() {
            let chosen =
                self.negotiated.and_then(|n| n.cipher).map_or(WireCipher::NONE, |c| WireCipher(c.to_wire()));
            out.encryption(&[chosen]).expect(FITS);
        }
        if let Some(Some(chosen)) = offer.signing {
            out.signing(&[WireSigning(chosen.to_wire())]).expect(FITS);
        }
        if offer.posix {
            out.posix().expect(FITS);
        }
        out
    }
}
