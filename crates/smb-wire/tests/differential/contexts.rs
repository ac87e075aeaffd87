//! Create contexts.

use proptest::collection::vec;
use proptest::prelude::*;
use smb_wire::context::{
    CreateContexts, CreateContextsBuf, CreateRequestContext, CreateResponseContext, DiskId, DurableFlags,
    DurableReconnectV2, DurableRequestV2, DurableResponseV2,
};
use smb2::msg::create_context as theirs;

use crate::{file_id, guid};

proptest! {
    #[test]
    fn chains(list in vec((vec(any::<u8>(), 4..20), vec(any::<u8>(), 0..40)), 1..6)) {
        let mut buf = CreateContextsBuf::new();
        for (name, data) in &list {
            buf.push(name, data).unwrap();
        }
        let read = theirs::parse_contexts(buf.as_contexts().as_bytes()).unwrap();
        prop_assert_eq!(read.into_iter().map(|c| (c.name, c.data)).collect::<Vec<_>>(), list.clone());

        let their: Vec<_> = list.iter().map(|(name, data)| theirs::CreateContext::new(name, data.clone())).collect();
        let bytes = theirs::pack_contexts(&their);
        let read = CreateContexts::from_bytes(&bytes).raw().map(|c| c.map(|c| (c.name.to_vec(), c.data.to_vec())));
        prop_assert_eq!(read.collect::<Result<Vec<_>, _>>(), Ok(list));
    }

    #[test]
    fn durable_handles(timeout_ms in any::<u32>(), id in any::<(u64, u64)>(), name in any::<[u8; 16]>(), p in any::<bool>()) {
        let flags = if p { DurableFlags::PERSISTENT } else { DurableFlags::empty() };
        let (our_id, their_id) = file_id(id);
        let (our_guid, their_guid) = guid(name);
        let request = theirs::DurableRequestV2 { timeout_ms, persistent: p, create_guid: their_guid }.context();
        let reconnect =
            theirs::DurableReconnectV2 { file_id: their_id, create_guid: their_guid, persistent: p }.context();
        let bytes = theirs::pack_contexts(&[request, reconnect, theirs::OnDiskId::request()]);
        let read: Vec<_> = CreateContexts::from_bytes(&bytes).requests().map(Result::unwrap).collect();
        prop_assert_eq!(
            read,
            [
                CreateRequestContext::DurableV2(DurableRequestV2 { timeout_ms, flags, create_guid: our_guid }),
                CreateRequestContext::DurableReconnectV2(DurableReconnectV2 {
                    file_id: our_id,
                    create_guid: our_guid,
                    flags,
                }),
                CreateRequestContext::QueryOnDiskId,
            ]
        );

        let mut buf = CreateContextsBuf::new();
        buf.response(&CreateResponseContext::DurableV2(DurableResponseV2 { timeout_ms, flags }))
            .and_then(|b| b.response(&CreateResponseContext::OnDiskId(DiskId { disk_file_id: id.0, volume_id: id.1 })))
            .unwrap();
        let list = theirs::parse_contexts(buf.as_contexts().as_bytes()).unwrap();
        let grant = theirs::DurableGrant::from_bytes(&theirs::find(&list, b"DH2Q").unwrap().data).unwrap();
        prop_assert_eq!(grant, theirs::DurableGrant { timeout_ms, persistent: p });
        let disk = theirs::OnDiskId::from_bytes(&theirs::find(&list, b"QFid").unwrap().data).unwrap();
        prop_assert_eq!((disk.disk_file_id, disk.volume_id), id);
    }
}
