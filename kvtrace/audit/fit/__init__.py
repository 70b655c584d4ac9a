"""How far the model is off: predicted against observed, request by request."""
