"""What makes a bare machine run the product: embedded servers, the `.env` block, the supervisor."""
