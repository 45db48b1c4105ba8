"""Operations on JSON documents: patches, server-side apply and field ownership."""
