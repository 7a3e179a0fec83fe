/* curl.c - nothing but a need of libcurl: tools that bundle libraries follow it into a wheel
 *
 * curl_api.c loads libcurl when it is first needed, which no such tool can see.
 */
extern const int ms_wheel_curl;
const int ms_wheel_curl = 1;
